"""Names, ports and URLs: what they are taken for, and what is refused."""

from __future__ import annotations

import pytest

from sandbox.egress.destinations import (
    AllowedHost,
    AllowList,
    Destination,
    parse_authority,
    parse_plain_target,
    parse_registry,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("pypi.org:443", "pypi.org", 443),
        ("PyPI.org:443", "pypi.org", 443),
        ("a_b-c.example:65535", "a_b-c.example", 65535),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("[::1]:80", "::1", 80),
        ("[0:0::1]:80", "::1", 80),
    ],
)
def test_authority_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_authority(text) == Destination(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "a", "a:", ":443", "a:0", "a:0443", "a:65536", "a:4 43", "a:٤٤٣", "a.:443", ".a:443", "a..b:443",
        "a b:443", "a@b:443", "a/b:443", "-a:443", "a-:443", f"{'a' * 64}:443", f"{'a.' * 130}a:443", "é:443",
        "::1:443", "[::1]", "[a]:443", "[1.1.1.1]:443", "[fe80::1%eth0]:443", "a\x00b:443", "a\r\nb:443",
    ],
)  # fmt: skip
def test_other_authorities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_authority(text)


@pytest.mark.parametrize(
    ("text", "destination", "path"),
    [
        ("http://a.example/x/y?z=1", "a.example:80", "/x/y?z=1"),
        ("HTTP://a.example", "a.example:80", "/"),
        ("http://a.example:3141/simple/", "a.example:3141", "/simple/"),
        ("http://[::1]/x", "[::1]:80", "/x"),
    ],
)
def test_plain_target_is_a_host_and_a_path(text: str, destination: str, path: str) -> None:
    found, rest = parse_plain_target(text)
    assert (str(found), rest) == (destination, path)


@pytest.mark.parametrize(
    "text",
    [
        "/x", "https://a.example/", "http://user@a.example/", "http://user:pw@a.example/", "http://a.example?x=1",
        "http://a.example#x", "http://a.example/#x", "http://a.example/a b", "http://a.example/\r\nHost: b",
        "http://a.example\\@b.example/", "http:///x", "http://:80/", "http://a.example:/x", "*",
    ],
)  # fmt: skip
def test_other_targets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_plain_target(text)


def test_list_knows_names_ports_and_kinds_of_requests_apart() -> None:
    entry = parse_registry("https://Registry.example:8443/simple", may_be_internal=True)
    allowed = AllowList([entry])
    assert entry == AllowedHost(Destination("registry.example", 8443), "https", may_be_internal=True)
    assert allowed.find("https", entry.destination) is entry
    for scheme, host, port in (
        ("http", "registry.example", 8443),
        ("https", "registry.example", 443),
        ("https", "x.registry.example", 8443),
        ("https", "example", 8443),
    ):
        assert allowed.find(scheme, Destination(host, port)) is None  # type: ignore[arg-type]  # a table of literals


def test_international_name_is_written_as_clients_ask_for_it() -> None:
    assert parse_registry("https://bücher.example", may_be_internal=False).destination.host == "xn--bcher-kva.example"


def test_a_name_is_not_that_of_another_host_which_an_older_spelling_makes_of_it() -> None:
    """RFC 3490 made `fass.de` of `faß.de`; clients ask for the name of RFC 5891, which may belong to somebody else."""
    assert parse_registry("https://faß.de", may_be_internal=False).destination.host == "xn--fa-hia.de"
    assert parse_registry("https://BÜCHER.example", may_be_internal=False).destination.host == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "url",
    ["pypi.org", "ftp://a.example", "https://", "https://u@a.example", "https://u:p@a.example", "https://a.example:x",
     "https://a b.example", "https://ü\u2028.example", "https://ü..example", "file:///srv/simple"],
)  # fmt: skip
def test_other_registries_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_registry(url, may_be_internal=False)
