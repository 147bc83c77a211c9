"""Which servers a session trusts and reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests
import trustme

from devtools.forges.exchange import Answer
from devtools.forges.server import Elsewhere, StandIn, serving
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
