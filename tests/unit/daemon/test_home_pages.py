"""The first page of the dashboard: the newest run of each task, also when a worker of a cluster does not answer."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from unittest.mock import MagicMock

import pytest

from sandbox.daemon import home_pages
from sandbox.daemon.home_pages import find_last_runs, group_events
from sandbox.daemon.page_templates import _format_age, render, shorten_ids
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Actor, CheckRun, HomeEvent, JournalEntry
from sandbox.workbench.controller.home_events import make_event
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


TASK = "task-12345678-1111-4222-8333-123456789abc"


def made_event(journal: str, operation: str, *names: str, result: str = "ok", **facts: str) -> HomeEvent:
    at, digest = datetime(2026, 1, 2, tzinfo=UTC), "sha256:" + "0" * 64
    entry = JournalEntry(
        seq=1, prev=digest, at=at, actor=Actor.CLI, operation=operation, arguments=digest, names=names, result=result,
        duration_s=0.0, facts=facts,
    )  # fmt: skip
    return make_event(journal, entry)


def test_changes_of_rules_in_a_row_are_one_line_and_other_events_one_each() -> None:
    """A new version that changes each profile would leave no line for anything else."""
    changes = [made_event("home", "policy-change", f"profile {number}") for number in range(3)]
    found = group_events(
        [
            made_event(TASK, "snapshot", TASK, "one"),
            made_event(TASK, "snapshot", TASK, "two"),
            *changes,
            made_event("home", "policy-change", "last", result="conflict"),
            made_event("home", "trust", "repo-one"),
            made_event("home", "trust", "repo-two"),
        ]
    )
    assert [(group.newest.operation.operation, group.count, group.names) for group in found] == [
        ("snapshot", 1, ("one",)),
        ("snapshot", 1, ("two",)),
        ("policy-change", 3, ("profile 0", "profile 1", "profile 2")),
        ("policy-change", 1, ("last",)),
        ("trust", 1, ("repo-one",)),
        ("trust", 1, ("repo-two",)),
    ]


def test_cleanings_in_a_row_are_one_line_with_what_they_removed() -> None:
    facts: tuple[dict[str, str], ...] = ({"1": "removed layer x"}, {"1": "kept storage home"}, {})
    [found] = group_events([made_event("home", "gc", **one) for one in facts])
    assert (found.count, found.names) == (3, ("removed layer x",))


def test_each_name_of_a_line_is_on_the_page() -> None:
    names = [f"profile-{number}.toml" for number in range(10)]
    values = {
        "repositories": (), "rows": (), "left_out": 0, "questions": 0, "page": "home",
        "form_token": "", "served_home": "",
        "events": group_events([made_event("home", "policy-change", name) for name in names]),
    }  # fmt: skip
    html = bytes(render("home", values).body).decode()
    assert [name for name in names if name not in html] == []
    assert "<summary>and 7 more</summary>profile-3.toml" in html


def test_ids_are_as_short_as_elsewhere_and_other_words_stay() -> None:
    commit, digest = "b9e75c3a61c7408884aa4e1ccd74e61bd448afc9", "a" * 64
    text = f"{commit}, {TASK}, sha256:{digest}, snap-661624c67514b-68f3d7"
    assert shorten_ids(text) == f"b9e75c3a61c7, 12345678, sha256:{digest}, snap-661624c67514b-68f3d7"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (5, "5 s"), (864, "14 min 24 s"), (3605, "1 h"), (90_000, "1 d 1 h")]
)
def test_an_age_has_the_two_units_that_say_most(seconds: float, said: str) -> None:
    assert _format_age(seconds) == said
