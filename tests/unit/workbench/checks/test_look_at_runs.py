"""A look at the checks that run in a task: what is new of each stream, with a bound, and of this task only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models.task_look import LookedAtRun, ReadUpTo
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.stop_requests import register_request
from sandbox.workbench.checks.look_at_runs import MOST_BYTES
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.workbench.checks.test_task_events import RUN, killed_request, record


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def look(desk: Desk, **places: ReadUpTo) -> list[LookedAtRun]:
    return [*desk.workbench.look_at_runs(desk.task.id, places).runs]


def test_output_is_read_from_where_the_caller_is_until_the_check_is_over(desk: Desk) -> None:
    home, logs = Home(desk.home), Home(desk.home).logs(desk.task.id)
    logs.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    assert look(desk) == []
    with register_request(home.stop_requests, desk.task.id) as request:
        request.note_run(RUN, "test")
        (logs / f"{RUN}.stdout").write_bytes(b"one\n")
        (first,) = look(desk)
        assert (first.check_id, first.is_over, first.stdout.content, first.stdout.upto) == ("test", False, b"one\n", 4)
        assert first.stderr.content == b""
        (logs / f"{RUN}.stdout").write_bytes(b"one\ntwo")
        (second,) = look(desk, **{RUN: ReadUpTo(stdout=4)})
        assert (second.stdout.content, second.stdout.upto, second.stdout.skipped) == (b"two", 7, 0)
    save_run(home, desk.task.id, record(desk.task.id))
    (last,) = look(desk, **{RUN: ReadUpTo(stdout=7)})
    assert (last.check_id, last.is_over, last.stdout.content) == ("test", True, b"")
    assert look(desk) == [], "what has ended is only of interest to who follows it"


def test_a_run_of_a_killed_controller_is_over(desk: Desk) -> None:
    home, logs = Home(desk.home), Home(desk.home).logs(desk.task.id)
    logs.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    with killed_request(home, desk.task.id) as request:
        request.note_run(RUN, "test")
        (logs / f"{RUN}.stdout").write_bytes(b"one\n")
        assert [run.is_over for run in look(desk)] == [False], "control"
    assert look(desk) == []
    (last,) = look(desk, **{RUN: ReadUpTo(stdout=2)})
    assert (last.is_over, last.stdout.content) == (True, b"e\n")


def test_of_much_output_the_end_is_read_and_what_is_left_out_is_counted(desk: Desk) -> None:
    home, logs = Home(desk.home), Home(desk.home).logs(desk.task.id)
    logs.mkdir(exist_ok=True)
    home.stop_requests.mkdir(exist_ok=True)
    with register_request(home.stop_requests, desk.task.id) as request:
        request.note_run(RUN, "test")
        (logs / f"{RUN}.stdout").write_bytes(b"x" * MOST_BYTES + b"y" * MOST_BYTES)
        (found,) = look(desk, **{RUN: ReadUpTo(stdout=10)})
        assert (found.stdout.content, found.stdout.skipped) == (b"y" * MOST_BYTES, MOST_BYTES - 10)
        assert found.stdout.upto == 2 * MOST_BYTES
        (beyond,) = look(desk, **{RUN: ReadUpTo(stdout=10**9)})
        assert (beyond.stdout.content, beyond.stdout.skipped) == (b"", 0)


def test_runs_of_other_tasks_and_files_that_are_no_logs_are_not_read(desk: Desk) -> None:
    """Control: the run is there, and its own task shows it."""
    home = Home(desk.home)
    other = desk.workbench.create_task(desk.task.repo_id)
    home.logs(other.id).mkdir(exist_ok=True)
    (home.logs(other.id) / f"{RUN}.stdout").write_bytes(b"secret\n")
    places = {RUN: ReadUpTo()}
    assert desk.workbench.look_at_runs(other.id, places).runs[0].stdout.content == b"secret\n"
    (found,) = look(desk, **places)
    assert (found.is_over, found.stdout.content) == (True, b"")
    assert look(desk, **{f"../{other.id}/{RUN}": ReadUpTo()}) == []
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.look_at_runs("task-00000000-0000-4000-8000-000000000000", {})
