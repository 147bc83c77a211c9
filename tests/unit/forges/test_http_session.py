"""Which servers a session trusts and reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import trustme

from devtools.forges.exchange import Answer
from devtools.forges.server import Elsewhere, StandIn, serving
from sandbox.errors import SandboxError
from sandbox.forges import answer_cache, http_session
from sandbox.forges.http_session import RefusedError, build_session

AUTHORITY = trustme.CA()


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A server with a certificate of a private authority."""
    found = StandIn(Elsewhere(lambda _: b"[]"))
    with serving(found, AUTHORITY):
        yield found


def test_the_credentials_ca_file_counts_whatever_the_environment_names(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = tmp_path / "ours.pem", tmp_path / "other.pem"
    AUTHORITY.cert_pem.write_to_path(ours)
    trustme.CA().cert_pem.write_to_path(other)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other))
    with closing(build_session(ours)) as session:
        assert session.get(server.url).json() == []
    with closing(build_session(None)) as session, pytest.raises(requests.exceptions.SSLError):
        session.get(server.url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ours))
    with closing(build_session(None)) as session:  # the control: the environment does count
        assert session.get(server.url).json() == []


@pytest.mark.parametrize(
    ("origin", "reached", "refused"),
    [
        ("https://git.example/api/v3", "https://git.example/x", "https://git.example.evil.example/x"),
        ("https://GIT.example:8443", "https://git.example:8443/x", "https://git.example/x"),
        ("https://b\u00fccher.example/api", "https://b\u00fccher.example/x", "https://bucher.example/x"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80/x", "https://127.0.0.1:80/x"),
    ],
    ids=["host", "port", "idna", "scheme"],
)
def test_a_session_of_one_origin_reaches_no_other(origin: str, reached: str, refused: str) -> None:
    with closing(build_session(None, only_origin=origin)) as session:
        session.get_adapter(str(requests.Request("GET", reached).prepare().url))
        with pytest.raises(requests.exceptions.InvalidSchema):
            session.get(refused)


def test_the_configured_proxy_goes_before_that_of_the_environment(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, nowhere = tmp_path / "ours.pem", "http://127.0.0.1:1"
    AUTHORITY.cert_pem.write_to_path(ours)
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, proxy, fails in (("", None, False), ("", nowhere, True), (nowhere, None, True), (nowhere, "", False)):
        monkeypatch.setenv("HTTPS_PROXY", name)
        with closing(build_session(ours, proxy=proxy)) as session:
            if fails:
                with pytest.raises(requests.exceptions.ProxyError):
                    session.get(server.url)
            else:
                assert session.get(server.url).json() == []


def test_an_origin_that_is_not_valid_fails_at_the_first_request() -> None:
    session = build_session(None, only_origin="https://*.example")
    with closing(session), pytest.raises(requests.exceptions.InvalidURL):
        session.get("https://*.example/x")


def test_an_answer_other_than_success_is_raised_with_what_it_says(server: StandIn, tmp_path: Path) -> None:
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ours.pem")
    server.on("GET", "/missing", Answer(404, {"message": "No"}))
    server.on("GET", "/page", Answer(502, b"<html>"))
    with closing(build_session(tmp_path / "ours.pem")) as session:
        for path, status, document in (("missing", 404, {"message": "No"}), ("page", 502, "<html>")):
            with pytest.raises(RefusedError) as caught:
                session.get(f"{server.url}/{path}")
            assert (caught.value.status, caught.value.document) == (status, document)


LOGS = ".blob.core.windows.net"


def find_followed(location: str, asked: str) -> bool:
    return http_session._may_follow(
        location, asked, lambda host: host.endswith(LOGS) or host in {"ghe.test", "10.0.0.1"}
    )


@pytest.mark.parametrize(
    "location",
    [
        f"https://127.0.0.2\\@x{LOGS}/log",
        f"https://127.0.0.2:8080\\@x{LOGS}/log",
        f"https://user@x{LOGS}/log",
        f"https://x{LOGS}:8080/log",
        f"http://x{LOGS}/log",
        f"https://127.0.0.2\n.x{LOGS}/log",
        f"https://x{LOGS}/log\x00",
        f"https://x{LOGS}/l\u00f6g",
        "https://127.0.0.2/log",
        "http://ghe.test:8443/log",
        "https://10.0.0.1:8443/log",
        "ftp://ghe.test/log",
        "/log",
        "https://[/log",
        "",
    ],
)
def test_s197_a_redirect_is_followed_to_the_host_that_was_checked(location: str) -> None:
    assert not find_followed(location, "https://ghe.test:8443/api/v3/log")


@pytest.mark.parametrize(
    ("location", "asked"),
    [
        (f"https://x{LOGS}/log?sig=a%2Fb", "https://ghe.test/api/v3/log"),
        (f"https://x{LOGS}:443/log", "https://ghe.test/api/v3/log"),
        (f"https://x{LOGS}/log", "https://b\u00fccher.example/api/v3/log"),
        ("https://ghe.test:9000/log", "https://ghe.test:8443/api/v3/log"),
        ("http://10.0.0.1:9000/log", "http://10.0.0.1:8080/api/v3/log"),
    ],
)
def test_s197_control_logs_of_known_hosts_are_fetched(location: str, asked: str) -> None:
    assert find_followed(location, asked)


def test_s197_a_redirect_that_two_libraries_read_in_two_ways_reaches_no_host(server: StandIn, tmp_path: Path) -> None:
    """urlsplit sees the allowed host, urllib3 connects to the other one. Control: the plain URL of that one."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ours.pem")
    place = server.url.removeprefix("https://")
    with closing(build_session(tmp_path / "ours.pem")) as session:
        assert urlsplit(f"https://{place}\\@x{LOGS}/secret").hostname == f"x{LOGS}"
        for location in (f"https://{place}\\@x{LOGS}/secret", f"https://{place}/secret"):
            server.on("GET", "/log", Answer(302, b"", headers={"Location": location}))
            with suppress(SandboxError, RefusedError):
                http_session.fetch_redirected(
                    session, f"{server.url}/log", {}, lambda host: host.endswith(LOGS), lambda: 10.0
                )
            assert [one.path for one in server.requests if one.path != "/log"] == []
        server.on("GET", "/log", Answer(302, b"", headers={"Location": f"https://{place}/secret"}))
        http_session.fetch_redirected(session, f"{server.url}/log", {}, lambda _host: True, lambda: 10.0)
        assert [one.path for one in server.requests if one.path != "/log"] == ["/secret"]


@pytest.fixture
def polled(server: StandIn, tmp_path: Path) -> Iterator[Callable[[int], int]]:
    """Asks for so many addresses, and returns how many requests were conditional."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ours.pem")

    def answer(_: Answer) -> Answer:
        known = server.requests[-1].header("If-None-Match") == '"x"'
        return Answer(304 if known else 200, b"" if known else b"[]" + b" " * 1000, headers={"ETag": '"x"'})

    server.on("GET", ".*", answer, forever=True)
    with closing(build_session(tmp_path / "ours.pem", conditional=True)) as session:

        def poll(count: int) -> int:
            before = len(server.requests)
            for number in range(count):
                assert session.get(f"{server.url}/{number}").json() == []
            return sum(one.header("If-None-Match") == '"x"' for one in server.requests[before:])

        yield poll


def test_addresses_that_are_asked_for_in_turn_are_remembered(polled: Callable[[int], int]) -> None:
    assert [polled(150), polled(150), polled(150)] == [0, 150, 150]


def test_a_server_whose_addresses_have_no_end_fills_no_memory(
    polled: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for lately is kept; the rest makes room."""
    monkeypatch.setattr(answer_cache, "MAX_BYTES", 10 * 10_000)
    assert polled(50) == 0
    kept = polled(50)
    assert 9 <= kept <= 11
    assert polled(50) == kept
    monkeypatch.setattr(answer_cache, "STALE_S", -1.0)
    assert polled(50) == kept
    assert polled(50) == 0, "each makes room for the next one"
