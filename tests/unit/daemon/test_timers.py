"""Timers: at the start, then from time to time; a failure ends nothing."""

from __future__ import annotations

import threading
from pathlib import Path

from sandbox.config import ServeSettings
from sandbox.daemon.timers import Timer, make_timers, run_timers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Workbench


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


class Recorded:
    """A workbench that only notes what is asked of it."""

    def __init__(self, ending: threading.Event) -> None:
        self.done: list[str] = []
        self._ending = ending

    def _note(self, name: str) -> None:
        self.done.append(name)
        if self.done.count("collect") >= 3:
            self._ending.set()

    def expire_approvals(self) -> None:
        self._note("expire")

    def collect(self) -> None:
        self._note("collect")

    def keep_to_limits(self) -> None:
        self._note("storage")

    def fill_pool(self) -> None:
        self._note("pool")

    def tasks(self) -> tuple[()]:
        self._note("follow")
        return ()


def test_the_daemon_does_all_its_duties_at_its_start_and_those_that_are_due_again() -> None:
    ending = threading.Event()
    recorded = Recorded(ending)
    settings = ServeSettings(reconcile_s=0.01, storage_s=60, follow_s=60)
    run_timers(make_timers(recorded, settings), ending, look_s=0.01)  # type: ignore[arg-type]  # what the timers use
    assert recorded.done[:4] == ["expire", "collect", "storage", "follow"]
    assert recorded.done[4:] == ["collect"] * 2


def test_spare_tasks_are_looked_after_if_there_are_to_be_any() -> None:
    ending = threading.Event()
    recorded = Recorded(ending)
    settings = ServeSettings(reconcile_s=0.01, storage_s=60, follow_s=60)
    run_timers(make_timers(recorded, settings, 2), ending, look_s=0.01)  # type: ignore[arg-type]  # as above
    assert recorded.done.count("pool") == 1


def test_reconciling_at_the_start_removes_what_a_killed_controller_left(tmp_path: Path) -> None:
    """Control: looking at the home does not."""
    ending = threading.Event()
    with Workbench(tmp_path / "home", environ={"PATH": "", "HOME": str(tmp_path)}) as workbench:
        left = workbench.home / "repositories/.registry.json.0123456789ab.tmp"
        left.touch()
        timers = make_timers(workbench, ServeSettings(storage_s=0, follow_s=0))
        workbench.repositories()
        assert left.exists()
        threading.Timer(0.05, ending.set).start()
        run_timers(timers, ending, look_s=0.01)
        assert not left.exists()
