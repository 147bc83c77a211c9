"""Callers at the same time share one run, and none gets an answer that is older than its call."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.shared_calls import SharedCalls

WAIT_S = 30.0


class Remote:
    """Answers with what it held when the action began. The first answer waits until the gate is opened."""

    def __init__(self) -> None:
        self.held = 0
        self.asked = 0
        self.began = threading.Event()
        self.gate = threading.Event()

    def ask(self) -> int:
        self.asked += 1
        seen = self.held
        self.began.set()
        self.gate.wait(WAIT_S)
        return seen


class CountedCalls(SharedCalls[int]):
    """Counts the callers that have found out which run is theirs: each of them writes it down once."""

    class Waiting(dict[Hashable, Any]):
        callers = 0

        def __setitem__(self, key: Hashable, run: object) -> None:
            super().__setitem__(key, run)
            self.callers += 1

    def __init__(self) -> None:
        super().__init__(WAIT_S)
        self._waiting: CountedCalls.Waiting = self.Waiting()

    def wait_for(self, callers: int) -> None:
        ends_at = time.monotonic() + WAIT_S
        while self._waiting.callers < callers and time.monotonic() < ends_at:
            time.sleep(0.001)


def test_callers_during_a_run_share_the_next_one_and_see_what_changed_before_they_asked() -> None:
    calls, remote = CountedCalls(), Remote()
    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(calls.run, "a", remote.ask)
        assert remote.began.wait(WAIT_S)
        remote.held = 1
        later = [pool.submit(calls.run, "a", remote.ask) for _ in range(30)]
        calls.wait_for(31)
        remote.gate.set()
        assert (first.result(WAIT_S), {each.result(WAIT_S) for each in later}) == (0, {1})
    assert remote.asked == 2
    assert not calls._waiting
    assert not calls._under_way


def test_a_caller_after_the_end_and_another_key_have_runs_of_their_own() -> None:
    calls, remote = SharedCalls[int](WAIT_S), Remote()
    remote.gate.set()
    assert [calls.run(key, remote.ask) for key in ("a", "a", "b")] == [0, 0, 0]
    assert remote.asked == 3


@pytest.mark.parametrize("interrupted", [False, True], ids=["an error of ours", "an interrupt"])
def test_a_failed_run_is_told_to_all_and_an_interrupt_to_none(interrupted: bool) -> None:
    calls, remote = CountedCalls(), Remote()
    leading, go_on = threading.Event(), threading.Event()

    def fail() -> int:
        leading.set()
        go_on.wait(WAIT_S)
        if interrupted:
            raise KeyboardInterrupt
        raise SandboxError(ErrorCode.TIMEOUT, "no answer")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(calls.run, "a", remote.ask)
        assert remote.began.wait(WAIT_S)
        leader = pool.submit(calls.run, "a", fail)
        calls.wait_for(2)
        joined = pool.submit(calls.run, "a", lambda: 7)
        calls.wait_for(3)
        remote.gate.set()
        assert leading.wait(WAIT_S)
        go_on.set()
        assert first.result(WAIT_S) == 0
        with pytest.raises(KeyboardInterrupt if interrupted else SandboxError):
            leader.result(WAIT_S)
        if interrupted:
            assert joined.result(WAIT_S) == 7  # its own run
        else:
            assert isinstance(joined.exception(WAIT_S), SandboxError)
