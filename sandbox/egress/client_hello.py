"""The server name in the first message of a TLS connection. Pure.

A CONNECT names one host; what follows could ask its address for another one, because many names share the addresses of
a content delivery network. So the name in the ClientHello (RFC 6066, section 3) is compared before a byte is sent on.
What is asked for inside the encrypted connection is not seen. Formats: RFC 8446, sections 4.1.2 and 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_HELLO_BYTES = 32 * 1024
"""Of the records with the first message. Post-quantum key shares have made it 2 KiB; 16 are enough for any client."""

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_MAX_RECORD = 2**14
_MAX_RECORDS = 32  # a message in thousands of tiny ones would cost much time to join after each byte
_SERVER_NAME, _ENCRYPTED_CLIENT_HELLO = 0, 0xFE0D
_HOST_NAME = 0


class NotTls(ValueError):
    """The bytes are not the beginning of a TLS connection."""


class HiddenName(ValueError):
    """The message names several servers, or another one in encrypted form."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise NotTls("cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        """Bytes after their length, which has `size` bytes."""
        return self.take(self.number(size))

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)


def find_server_name(data: bytes) -> str | None:
    """The server name of a complete ClientHello, in lower case; '' if it has none; None if more bytes are needed.

    Raises: `NotTls`, also for a message that is too long; `HiddenName`.
    """
    message = _join_records(data)
    return None if message is None else _read_server_name(message)


def _join_records(data: bytes) -> bytes | None:
    """The handshake message that begins the stream, which may be in several records; None: not complete yet."""
    message = b""
    at = count = 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        head = data[at : at + 5]
        if head[:1] not in (b"", bytes([_HANDSHAKE])) or head[1:2] not in (b"", b"\x03"):
            raise NotTls("not a handshake record")
        length = int.from_bytes(head[3:5])
        if len(head) == 5 and not 0 < length <= _MAX_RECORD:
            raise NotTls("not a valid record length")
        message += data[at + 5 : at + 5 + length] if len(head) == 5 else b""
        _require_client_hello(message)
        if len(head) < 5 or len(data) < at + 5 + length:
            return None
        at += 5 + length
        count += 1
        if count > _MAX_RECORDS:
            raise NotTls("too many records")
    return message[: 4 + int.from_bytes(message[1:4])]


def _require_client_hello(message: bytes) -> None:
    if message and message[0] != _CLIENT_HELLO:
        raise NotTls("not a ClientHello")
    if len(message) >= 4 and int.from_bytes(message[1:4]) > MAX_HELLO_BYTES // 2:
        raise NotTls("a ClientHello that is too long")


def _read_server_name(message: bytes) -> str:
    reader = _Reader(message[4:])
    reader.take(2 + 32)  # version, random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression
    if reader.is_empty:
        return ""
    names = []
    for kind, content in _split_extensions(reader.vector(2)):
        if kind == _ENCRYPTED_CLIENT_HELLO:
            raise HiddenName("an encrypted ClientHello")
        if kind == _SERVER_NAME:
            names.append(_read_host_name(content))
    if len(names) > 1:
        raise HiddenName("several server names")
    return names[0] if names else ""


def _split_extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(data)
    while not reader.is_empty:
        yield reader.number(2), reader.vector(2)


def _read_host_name(content: bytes) -> str:
    names = _Reader(_Reader(content).vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or not names.is_empty:
        raise HiddenName("several server names")
    return name.decode("latin-1").lower()
