"""Sessions of persons in a browser, by the header that anyone may send."""

from __future__ import annotations

import time
from http.cookies import SimpleCookie

import pytest

from sandbox.daemon.browser_sessions import COOKIE, Sessions


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def open_one(sessions: Sessions) -> str:
    secret = sessions.open_session(sessions.make_link())
    assert secret is not None
    return secret


def test_a_session_is_found_beside_other_cookies(sessions: Sessions) -> None:
    """A page of another port may have set one of the same name."""
    secret = open_one(sessions)
    for header in (
        f"{COOKIE}={secret}",
        f"a=b; {COOKIE}={secret};c",
        f"{COOKIE}={secret}; {COOKIE}=other",
        f"{COOKIE}=other;{COOKIE}={secret}",
    ):
        assert sessions.find(header) == secret, header


@pytest.mark.parametrize(
    "header", ["", COOKIE, f"{COOKIE}=", f"{COOKIE}=other", "x{secret}", f"{COOKIE}x={{secret}}", "=;;==;\xff=\xfe"]
)
def test_another_header_has_no_session(sessions: Sessions, header: str) -> None:
    assert sessions.find(header.replace("{secret}", open_one(sessions))) is None


def measure(parse: object, size: int) -> float:
    """Of a header of backslashes: processor time, in seconds."""
    header = f'{COOKIE}="' + "\\" * size + '"'
    began = time.process_time()
    parse(header)  # type: ignore[operator]
    return time.process_time() - began


def test_s198_a_cookie_of_backslashes_takes_no_time(sessions: Sessions) -> None:
    """Control: the parser of Python, as far as it has the fault (before 3.11.10, 3.12.6 and 3.13)."""
    slow = measure(SimpleCookie, 8_000)
    if measure(SimpleCookie, 4_000) * 3 < slow:
        assert measure(sessions.find, 60_000) < slow
    assert measure(sessions.find, 600_000) < 0.5
