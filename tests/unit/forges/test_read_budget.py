"""The time that one question to a forge has."""

from __future__ import annotations

import time

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import read_budget
from sandbox.forges.http_session import TransientForgeError, retry_read
from sandbox.forges.read_budget import ReadBudget


def ask_of(budget: ReadBudget, wait_s: float) -> tuple[TransientForgeError, int]:
    """The error of a forge that always names this pause, and the number of requests."""
    asked = 0

    def ask() -> None:
        nonlocal asked
        budget.limit_request()
        asked += 1
        raise TransientForgeError(SandboxError(ErrorCode.FORGE_ERROR, "The rate limit was reached"), wait_s)

    with pytest.raises(TransientForgeError) as caught:
        retry_read(ask, budget.left_s)
    return caught.value, asked


def test_a_pause_that_is_longer_than_the_time_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "READS_TIMEOUT_S", 3.0)
    begun = time.monotonic()
    error, asked = ask_of(ReadBudget(), 5.0)
    assert (error.brief, error.wait_s, asked) == ("The rate limit was reached", 5.0, 1)
    assert time.monotonic() - begun < 1.0


def test_a_question_without_time_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "READS_TIMEOUT_S", -1.0)
    begun = time.monotonic()
    error, asked = ask_of(ReadBudget(), 0.0)
    assert (error.code, asked) == (ErrorCode.TIMEOUT, 0)
    assert time.monotonic() - begun < 0.4
