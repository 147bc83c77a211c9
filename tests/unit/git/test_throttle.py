"""The pause that a server asks for, read from git's trace."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.git.throttle import last_header, retry_after

SAMPLE = Path(__file__).parents[2] / "data" / "git-trace" / "2.39.5" / "http-429.txt"
NOW = datetime(2026, 11, 22, 1, 0, 0, tzinfo=UTC)


def answer(status: str, *headers: str) -> str:
    lines = (f"http.c:684              <= Recv header: {text}" for text in (status, *headers, ""))
    return "".join(f"01:12:06.587766 {line}\n" for line in lines)


def test_a_captured_trace_names_seven_seconds() -> None:
    assert retry_after(SAMPLE.read_text(), NOW) == 7


@pytest.mark.parametrize(
    ("trace", "wait_s"),
    [
        (answer("HTTP/1.1 503 On order", "Retry-After: 120"), 120),
        (answer("HTTP/2 429", "retry-after: 0"), 0),
        (answer("HTTP/1.1 429 x", "Retry-After:   5  "), 5),
        (answer("HTTP/1.1 429 x", "Retry-After: Sun, 22 Nov 2026 01:00:09 GMT"), 9),
        (answer("HTTP/1.1 429 x", "Retry-After: Sun, 22 Nov 2020 01:00:09 GMT"), 0),
        (answer("HTTP/1.1 429 x", "Retry-After: 9") + answer("HTTP/1.1 503 x", "Retry-After: 3"), 3),
    ],
    ids=["503", "http2", "spaces", "date", "date-gone-by", "last-answer"],
)
def test_the_last_answers_wish_is_heard(trace: str, wait_s: float) -> None:
    assert retry_after(trace, NOW) == wait_s


@pytest.mark.parametrize(
    "trace",
    [
        "",
        answer("HTTP/1.1 429 x"),
        answer("HTTP/1.1 200 OK", "Retry-After: 5"),
        answer("HTTP/1.1 404 x", "Retry-After: 5"),
        answer("HTTP/1.1 429 x", "Retry-After: 5") + answer("HTTP/1.1 200 OK"),
        answer("HTTP/1.1 429 x", "Retry-After: -5"),
        answer("HTTP/1.1 429 x", "Retry-After: soon"),
        answer("HTTP/1.1 429 x", f"Retry-After: {'9' * 400}"),
        answer("HTTP/1.1 429 x", "Retry-After: Sun, 22 Nov 2026 01:00:09"),
        answer("HTTP/1.1 429 x", "X-Retry-After: 5"),
        "01:12 => Send header: HTTP/1.1 429 x\n01:12 => Send header: Retry-After: 5\n",
    ],
)
def test_anything_else_is_no_wish(trace: str) -> None:
    assert retry_after(trace, NOW) is None


@given(st.text(), st.text())
def test_no_text_of_a_server_is_an_error(status: str, value: str) -> None:
    found = retry_after(answer(f"HTTP/1.1 429 {status}", f"Retry-After: {value}"), NOW)
    assert found is None or found >= 0


def test_a_header_is_of_the_last_answer_and_of_no_request() -> None:
    trace = answer("HTTP/1.1 401 x", "Location: first") + answer("HTTP/1.1 302 x", "LOCATION:  second ")
    assert (last_header(trace, "location"), last_header(trace, "content-type")) == ("second", "")
    assert last_header("01:12 => Send header: location: x\n", "location") == ""
