"""Timers: at the start, then from time to time; a failure ends nothing."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from sandbox.config import ServeSettings
from sandbox.daemon import timers
from sandbox.daemon.timers import Timer, make_cleaning_timers, make_timers, name_as_timer, run_timers, start_timers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Actor, Leftover, LeftoverAction, Reconciliation
from sandbox.models.spare_pool import Pool
from sandbox.workbench import Workbench

DEADLINE_S = 60


def test_a_duty_is_done_at_the_start_and_then_when_it_is_due() -> None:
    done: list[float] = []
    timer = Timer("one", 10.0, lambda: done.append(1))
    for now in (100.0, 105.0, 110.0, 119.0, 121.0):
        timer.run_if_due(now)
    assert len(done) == 3


def test_a_duty_of_0_is_never_done() -> None:
    """Control: one of a second is."""
    done: list[float] = []
    for every_s in (0.0, 1.0):
        Timer("one", every_s, lambda every_s=every_s: done.append(every_s)).run_if_due(100.0)  # type: ignore[misc]  # mypy: a default
    assert done == [1.0]


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
    """A workbench that only notes what is asked of it. `blocked`: duties that do not end before `go_on`."""

    def __init__(self, ending: threading.Event, *blocked: str) -> None:
        self.done: list[str] = []
        self.go_on = threading.Event()
        self._ending, self._blocked = ending, blocked

    def _note(self, name: str) -> None:
        self.done.append(name)
        if name in self._blocked:
            assert self.go_on.wait(DEADLINE_S)
        if self.done.count("collect") >= 3:
            self._ending.set()

    def expire_approvals(self) -> None:
        self._note("expire")

    def collect(self) -> Reconciliation:
        self._note("collect")
        return Reconciliation(dry_run=False, leftovers=())

    def keep_to_limits(self) -> Reconciliation:
        self._note("storage")
        return Reconciliation(dry_run=False, leftovers=())

    def fill_pool(self) -> Pool:
        self._note("pool")
        return Pool()

    def tasks(self) -> tuple[()]:
        self._note("follow")
        return ()


def run_all(recorded: Recorded, ending: threading.Event, pool_size: int = 0) -> None:
    """Until `ending`."""
    settings = ServeSettings(reconcile_s=0.01, storage_s=60, follow_s=60)
    duties = make_timers(recorded, settings, pool_size)  # type: ignore[arg-type]  # what the timers use
    for thread in start_timers(duties, ending, look_s=0.01):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_the_daemon_does_all_its_duties_at_its_start_and_those_that_are_due_again() -> None:
    ending = threading.Event()
    recorded = Recorded(ending)
    run_all(recorded, ending)
    assert sorted(recorded.done) == ["collect"] * 3 + ["expire", "follow", "storage"]
    assert [one for one in recorded.done if one in {"collect", "storage"}][:2] == ["collect", "storage"]


def test_spare_tasks_are_looked_after_if_there_are_to_be_any() -> None:
    ending = threading.Event()
    recorded = Recorded(ending)
    run_all(recorded, ending, 2)
    assert recorded.done.count("pool") == 1


def test_why_the_pool_stays_empty_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Control: what passes by itself, such as a spare that is being taken over, is not."""
    turns = [{"task-1": "busy"}, {"one": "no image"}, {"one": "no image"}, {"one": "no image", "two": "no image"}, {}]

    class Failing:
        def fill_pool(self) -> Pool:
            return Pool(problems=turns.pop(0))

    filling = timers.PoolFilling(Failing())  # type: ignore[arg-type]  # what it uses
    while turns:
        filling.fill()
    assert [record.getMessage() for record in caplog.records] == ["a spare task is missing: no image"]


def test_a_limit_that_is_exceeded_and_what_failed_is_logged_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Control: what is kept for another reason, is in use, or went, is none."""
    full = Leftover(kind="storage", name="home", action=LeftoverAction.KEPT, note="3 MiB more")
    more = Leftover(kind="storage", name="home", action=LeftoverAction.KEPT, note="4 MiB more")
    failed = Leftover(kind="look", name="dead containers", action=LeftoverAction.FAILED, note="no engine")
    rest = [Leftover(kind="clone", name=one.value, action=one) for one in LeftoverAction if one.value != "failed"]
    turns = [[full, *rest], [more, failed, *rest], rest, [failed]]
    cleaning = timers.Cleaning(lambda: Reconciliation(dry_run=False, leftovers=tuple(turns.pop(0))))
    while turns:
        cleaning.run()
    look = "cleaning up, look dead containers: no engine"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "cleaning up, storage home: 3 MiB more", look, look,
    ]  # fmt: skip


@pytest.mark.parametrize("storage_s", [0, 60])
def test_one_duty_names_the_limits(caplog: pytest.LogCaptureFixture, storage_s: float) -> None:
    full = Leftover(kind="storage", name="home", action=LeftoverAction.KEPT, note="3 MiB more")

    class Full:
        def collect(self) -> Reconciliation:
            return Reconciliation(dry_run=False, leftovers=(full,))

        keep_to_limits = collect

    for timer in make_cleaning_timers(Full(), ServeSettings(storage_s=storage_s)):  # type: ignore[arg-type]  # as above
        timer.run_if_due(time.monotonic())
    assert [record.getMessage() for record in caplog.records] == ["cleaning up, storage home: 3 MiB more"]


def test_a_duty_that_takes_long_does_not_delay_those_that_have_a_time_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing a large clone, or a forge that does not answer."""
    monkeypatch.setattr(timers, "EXPIRE_S", 0.01)
    monkeypatch.setattr(timers, "FILL_S", 0.01)
    ending = threading.Event()
    recorded = Recorded(ending, "collect", "follow")
    threads = start_timers(make_timers(recorded, ServeSettings(), 1), ending, look_s=0.01)  # type: ignore[arg-type]  # as above
    until = time.monotonic() + DEADLINE_S
    try:
        while min(recorded.done.count(name) for name in ("expire", "pool")) < 3:
            assert time.monotonic() < until, recorded.done
            time.sleep(0.01)
        assert [recorded.done.count(name) for name in ("collect", "follow", "storage")] == [1, 1, 0]
    finally:
        ending.set()
        recorded.go_on.set()
        for thread in threads:
            thread.join(DEADLINE_S)


def test_the_journal_tells_a_timer_from_a_person(tmp_path: Path) -> None:
    """Control: what a person does is not called a timer's."""
    with Workbench(tmp_path / "home", environ={"PATH": "", "HOME": str(tmp_path)}, actor=Actor.CLI) as workbench:
        for caller in (workbench, name_as_timer(workbench)):
            [cleaning] = make_cleaning_timers(caller, ServeSettings(storage_s=0))[:1]
            cleaning.work()
        lines = (workbench.home / "repositories/journal/home.jsonl").read_text().splitlines()
    callers = [(entry["operation"], entry["by"].get("program", "")) for entry in map(json.loads, lines)]
    assert [one for one in callers if one[0] == "gc"] == [("gc", ""), ("gc", "timer")]


def test_reconciling_at_the_start_removes_what_a_killed_controller_left(tmp_path: Path) -> None:
    """Control: looking at the home does not."""
    ending = threading.Event()
    with Workbench(tmp_path / "home", environ={"PATH": "", "HOME": str(tmp_path)}) as workbench:
        left = workbench.home / "repositories/.registry.json.0123456789ab.tmp"
        left.touch()
        cleaning = make_cleaning_timers(workbench, ServeSettings(storage_s=0))
        workbench.repositories()
        assert left.exists()
        threading.Timer(0.05, ending.set).start()
        run_timers(cleaning, ending, look_s=0.01)
        assert not left.exists()
