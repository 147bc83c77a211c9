"""The server name in the first message of TLS, as real clients and liars write it."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.client_hello import MAX_HELLO_BYTES, HiddenName, NotTls, find_server_name

NAME = "registry.example"


def real_hello(name: str | None = NAME, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def vector(content: bytes, size: int) -> bytes:
    return len(content).to_bytes(size) + content


def server_names(*names: bytes, kind: int = 0) -> bytes:
    """The content of the extension."""
    return vector(b"".join(bytes([kind]) + vector(name, 2) for name in names), 2)


def hello(*extensions: tuple[int, bytes]) -> bytes:
    """A message with these extensions, without its record."""
    rest = b"".join(kind.to_bytes(2) + vector(content, 2) for kind, content in extensions)
    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\x13\x01", 2) + vector(b"\x00", 1) + vector(rest, 2)
    return b"\x01" + vector(body, 3)


def record(content: bytes) -> bytes:
    return b"\x16\x03\x01" + vector(content, 2)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_name_of_a_real_client_is_found(newest: ssl.TLSVersion) -> None:
    assert find_server_name(real_hello(newest=newest)) == NAME


def test_client_without_a_name_has_none() -> None:
    assert find_server_name(real_hello(None)) == ""
    body = b"\x03\x03" + bytes(32) + vector(b"", 1) + vector(b"\x13\x01", 2) + vector(b"\x00", 1)
    assert find_server_name(record(b"\x01" + vector(body, 3))) == ""


def test_every_part_of_it_waits_for_more() -> None:
    whole = real_hello()
    assert all(find_server_name(whole[:count]) is None for count in range(len(whole)))


@pytest.mark.parametrize("count", [5, 25])
def test_message_in_several_records_is_joined(count: int) -> None:
    message = real_hello()[5:]  # its length depends on the version of OpenSSL
    size = len(message) // count + 1
    records = b"".join(record(message[at : at + size]) for at in range(0, len(message), size))
    assert find_server_name(records) == NAME
    assert find_server_name(records[:-1]) is None


def test_message_in_many_tiny_records_is_refused() -> None:
    with pytest.raises(NotTls, match="too many"):
        find_server_name(b"".join(record(bytes([byte])) for byte in real_hello()[5:]))


def test_bytes_after_the_message_do_not_matter() -> None:
    assert find_server_name(record(hello((0, server_names(b"A.example")))) + b"\x14\x03") == "a.example"


@pytest.mark.parametrize(
    "extensions",
    [
        [(0, server_names(NAME.encode())), (0, server_names(b"other.example"))],
        [(0, server_names(NAME.encode(), b"other.example"))],
        [(0, server_names(NAME.encode(), kind=1))],
        [(0, server_names(NAME.encode())), (0xFE0D, b"\x00" * 40)],
    ],
    ids=["twice", "two names", "another kind", "encrypted"],
)
def test_hidden_or_several_names_are_refused(extensions: list[tuple[int, bytes]]) -> None:
    with pytest.raises(HiddenName):
        find_server_name(record(hello(*extensions)))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x16\x02\x00\x00\x05", b"\x16\x03\x01\x00\x00",
        b"\x17\x03\x03\x00\x05",
        b"\x16\x03\x01\x40\x01", record(b"\x02\x00\x00\x05"), record(b"\x01" + (MAX_HELLO_BYTES).to_bytes(3)),
        record(b"\x01\x00\x00\x05hello"), record(hello((0, server_names(NAME.encode())[:-3]))),
        record(hello()[:4]) + b"\x14\x03\x03\x00\x01\x01",
    ],
    ids=["http", "ssh", "ssl 2", "empty record", "data", "long record", "server hello", "long", "short", "cut name",
         "another record between"],
)  # fmt: skip
def test_what_is_no_hello_is_refused(data: bytes) -> None:
    with pytest.raises(NotTls):
        find_server_name(data)


@given(st.binary(max_size=300), st.integers(0, 300), st.booleans())
def test_any_bytes_have_an_answer(noise: bytes, at: int, whole: bool) -> None:
    message = hello((0, server_names(NAME.encode())))
    data = record(message[:at] + noise + message[at + len(noise) :]) if whole else noise
    with suppress(NotTls, HiddenName):
        find_server_name(data)
