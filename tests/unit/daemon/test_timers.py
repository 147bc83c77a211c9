"""Timers: at the start, then from time to time; a failure ends nothing."""

from __future__ import annotations

from sandbox.daemon.timers import Timer
from sandbox.errors import ErrorCode, SandboxError


def test_a_duty_is_done_at_the_start_and_then_when_it_is_due() -> None:
    done: list[float] = []
    timer = Timer("one", 10.0, lambda: done.append(1))
    for now in (100.0, 105.0, 110.0, 119.0, 121.0):
        timer.run_if_due(now)
    assert len(done) == 3


def test_a_duty_of_0_is_never_done() -> None:
    timer = Timer("never", 0.0, lambda: 1 / 0)
    timer.run_if_due(100.0)


def test_a_failure_is_logged_and_tried_again() -> None:
    tried: list[int] = []

    def fail() -> None:
        tried.append(1)
        raise SandboxError(ErrorCode.TIMEOUT, "slow")

    timer = Timer("one", 1.0, fail)
    timer.run_if_due(1.0)
    timer.run_if_due(2.5)
    assert len(tried) == 2
