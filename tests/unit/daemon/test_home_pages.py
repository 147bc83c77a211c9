"""The first page of the dashboard: the newest run of each task, also when a worker of a cluster does not answer."""

from __future__ import annotations

import threading
from unittest.mock import MagicMock

import pytest

from sandbox.daemon import home_pages
from sandbox.daemon.home_pages import find_last_runs
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun
from tests.unit.receipt_samples import made_run


@pytest.mark.parametrize("has_cluster", [False, True])
def test_each_task_has_its_newest_run_and_one_that_fails_has_none(has_cluster: bool) -> None:
    run = made_run("test")

    def runs(task_id: str, most: int) -> tuple[CheckRun, ...]:
        if task_id == "lost":
            raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "its worker was lost")
        return (run,) * most

    person = MagicMock(has_cluster=has_cluster, runs=runs)
    names = [f"task-{number}" for number in range(30)]
    assert find_last_runs(person, [*names, "lost"]) == {**dict.fromkeys(names, run), "lost": None}


def test_tasks_that_were_not_reached_in_time_are_not_asked_about_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_pages, "ANSWER_S", 0.2)
    asked, never = list[str](), threading.Event()

    def runs(task_id: str, _most: int) -> tuple[CheckRun, ...]:
        asked.append(task_id)
        never.wait(60)
        return ()

    assert find_last_runs(MagicMock(has_cluster=True, runs=runs), [str(number) for number in range(50)]) == {}
    never.set()
    for thread in [one for one in threading.enumerate() if one.name == "last-runs"]:
        thread.join(30)
    assert len(asked) == home_pages.ASKED_AT_ONCE


def test_a_worker_that_does_not_answer_delays_the_page_by_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_pages, "ANSWER_S", 0.2)
    run, never = made_run("test"), threading.Event()

    def runs(task_id: str, _most: int) -> tuple[CheckRun, ...]:
        if task_id == "silent":
            never.wait(60)
        return (run,)

    person = MagicMock(has_cluster=True, runs=runs)
    found = find_last_runs(person, ["silent", "one", "two"])
    never.set()
    assert found == {"one": run, "two": run}
