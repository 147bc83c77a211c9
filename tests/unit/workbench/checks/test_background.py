"""Background runs without an engine: what their work does is scripted here, the records and the threads are real."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from sandbox.cli.background import show_background_run
from sandbox.cli.invocation import Invocation
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import BackgroundRun, CheckRun
from sandbox.store import background_runs
from sandbox.store.background_runs import BackgroundRunRecord, find_background_run, save_background_run
from sandbox.store.home import Home
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks import background
from sandbox.workbench.controller.background_threads import MAX_BACKGROUND_RUNS, BackgroundThread, BackgroundThreads
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

DEADLINE_S = 60.0


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    found = Desk(upstream, tmp_path / "sandbox-home")
    with found.workbench:
        yield found


def question(desk: Desk) -> background.Question:
    return background.Question("check", desk.task.id, ("test",))


def test_the_error_of_a_run_keeps_its_reason_and_data(desk: Desk) -> None:
    """Also for another process, which only has the record."""
    data = {"path": "f", "lines": [1, 2], "closest": None}

    parts, started = desk.workbench._services, threading.Event()

    def fail(_watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        started.wait(DEADLINE_S)
        raise SandboxError(ErrorCode.CONFLICT, "no", details="d", hint="h", reason="changed", data=data)

    run = background.start(parts, question(desk), Watch(), fail)
    started.set()
    with pytest.raises(SandboxError) as caught:
        background.wait(parts.home, parts.background_threads, run.run_id, DEADLINE_S)
    error = caught.value
    assert (error.code, error.brief, error.details, error.hint) == (ErrorCode.CONFLICT, "no", "d", "h")
    assert (error.reason, error.data) == ("changed", data)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param("a", "b", False, id="another state was approved"),
        pytest.param(None, "b", False, id="the first was asked about no state"),
        pytest.param("a", "a", True, id="control: the same state"),
        pytest.param("a", None, True, id="control: any state"),
        pytest.param(None, None, True, id="control: both any"),
    ],
)
def test_an_approved_state_gets_no_answer_about_another_one(
    desk: Desk, first: str | None, second: str | None, *, shared: bool
) -> None:
    """The run began with the files of its own approval, and may not have seen the others."""
    services, go = desk.workbench._services, threading.Event()
    asked = list[str | None]()

    def work(tree: str | None) -> background.Work:
        def run(_watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
            asked.append(tree)
            go.wait(DEADLINE_S)
            return ()

        return run

    runs = [
        background.start(services, replace(question(desk), expected_tree=tree and tree * 40), Watch(), work(tree))
        for tree in (first, second)
    ]
    go.set()
    for run in runs:
        background.wait(services.home, services.background_threads, run.run_id, DEADLINE_S)
    assert (runs[0].run_id == runs[1].run_id) is shared
    assert asked == ([first] if shared else [first, second])


def test_a_record_without_reason_and_data_can_be_read(desk: Desk) -> None:
    """Written by an older version."""
    services = desk.workbench._services
    failure = {"code": "conflict", "brief": "no", "details": "", "hint": ""}
    _record(desk, state="failed", failure=failure)

    with pytest.raises(SandboxError) as caught:
        background.wait(services.home, services.background_threads, "run-" + "a" * 32, 0.0)
    assert (caught.value.brief, caught.value.reason, caught.value.data) == ("no", None, None)


def _record(desk: Desk, **fields: Any) -> BackgroundRunRecord:
    home = desk.workbench._services.home
    home.background_runs.mkdir(mode=0o700, exist_ok=True)
    record = BackgroundRunRecord.model_validate(
        {
            "run_id": "run-" + "a" * 32,
            "task_id": desk.task.id,
            "operation": "check",
            "check_ids": ["test"],
            "started_at": "2026-01-01T00:00:00Z",
            **fields,
        }
    )
    save_background_run(home, record)
    return record


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the records that were read."""
    found: list[str] = []

    def counted(home: Home, run_id: str) -> BackgroundRunRecord:
        found.append(run_id)
        return find_background_run(home, run_id)

    monkeypatch.setattr(background, "find_background_run", counted)
    return found


def test_one_look_reads_the_record_once(desk: Desk, reads: list[str]) -> None:
    parts, ends = desk.workbench._services, threading.Event()

    def work(watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        while not ends.is_set() and not watch.cancelled():
            ends.wait(0.01)
        return ()

    run = background.start(parts, question(desk), Watch(), work)
    reads.clear()
    assert background.wait(parts.home, parts.background_threads, run.run_id, 0.0).state == "running"
    assert reads == [run.run_id]
    ends.set()
    background.wait(parts.home, parts.background_threads, run.run_id, DEADLINE_S)
    reads.clear()
    assert background.wait(parts.home, parts.background_threads, run.run_id, 0.0).state == "finished"
    assert reads == [run.run_id]


def test_the_progress_of_a_build_of_a_repositorys_layers_names_it(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    found = BackgroundRun(
        run_id="run-" + "a" * 32, repo_id="host-o-r", operation="layers-build", started_at=datetime.now(UTC),
        state="running", elapsed_s=2.0,
    )  # fmt: skip
    with click.Context(click.Command("wait"), obj=Invocation(home=desk.home)):
        show_background_run(found)
        said = capsys.readouterr()
        assert said.out == f"{found.run_id}  layers-build of host-o-r: running for 2 s\n"
        assert f"sandbox --home {desk.home} check wait {found.run_id}" in said.err
        show_background_run(found.model_copy(update={"repo_id": None, "task_id": desk.task.id, "check_id": "test"}))
        assert f"test of {desk.task.id}: running" in capsys.readouterr().out


def test_a_run_that_ends_between_record_and_lock_is_not_taken_for_killed(
    desk: Desk, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _record(desk)

    def ended_meanwhile(_parts: object, _record: BackgroundRunRecord) -> bool:
        save_background_run(
            desk.workbench._services.home, record.model_copy(update={"state": "finished", "ended_s": 1.0})
        )
        return False

    monkeypatch.setattr(background, "_is_alive", ended_meanwhile)
    assert (
        background.wait(
            desk.workbench._services.home, desk.workbench._services.background_threads, record.run_id, 0.0
        ).state
        == "finished"
    )
    assert len(reads) == 2


def test_a_run_of_a_killed_process_has_no_result(desk: Desk) -> None:
    """Control: its record says that it runs, and no process holds the request."""
    record = _record(desk)
    for wait_s in (0.0, 10**400):  # the second is more than a clock counts
        with refused(ErrorCode.NOT_FOUND) as caught:
            desk.workbench.wait_run(record.run_id, wait_s)
        assert caught.value.hint == "Ask for it again."  # no check had begun


def test_the_hint_on_a_killed_run_names_the_log_of_its_check(desk: Desk) -> None:
    check_run = "run-" + "b" * 32
    record = _record(desk, check_id="test", check_run_id=check_run)
    logs = desk.workbench._services.home.logs(desk.task.id)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{check_run}.stdout").write_bytes(b"begun\n")
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.wait_run(record.run_id, 0.0)
    assert f"`sandbox check log {check_run}`" in caught.value.hint
    assert desk.workbench.run_log(check_run).content == "begun\n"


@pytest.mark.parametrize(("most", "kept"), [(0, 3), (2, 2)], ids=["all", "the newest"])
def test_a_start_removes_the_oldest_records(desk: Desk, monkeypatch: pytest.MonkeyPatch, most: int, kept: int) -> None:
    monkeypatch.setattr(background_runs, "PRUNE_SLACK", 0)
    home = desk.workbench._services.home
    records = [home.background_run(_record(desk, run_id=f"run-{n:032x}", state="finished").run_id) for n in range(3)]
    for n, path in enumerate(records):
        os.utime(path, (n, n))
    with Workbench(desk.home, environ={}, settings={"keep": {"background_runs": most}}) as bench:
        services = bench._services
        run = background.start(services, question(desk), Watch(), lambda _watch, _run_id: ())
        background.wait(home, services.background_threads, run.run_id, DEADLINE_S)
    assert [path for path in records if path.exists()] == records[3 - kept :]


class FullDisk:
    """Records of background runs cannot be saved while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.refused = 0
        monkeypatch.setattr(background, "save_background_run", self._save)

    def _save(self, home: Home, record: BackgroundRunRecord) -> None:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save_background_run(home, record)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.mark.parametrize("fails", [False, True], ids=["result", "error"])
def test_an_end_that_cannot_be_saved_is_answered_and_saved_later(desk: Desk, disk: FullDisk, fails: bool) -> None:
    """The disk is full when the run ends. This process has the result; another one reads that it may have been lost."""
    services, started = desk.workbench._services, threading.Event()

    def work(_watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        assert started.wait(DEADLINE_S)
        disk.is_full = True
        if fails:
            raise SandboxError(ErrorCode.CONFLICT, "no")
        return ()

    def answer(threads: BackgroundThreads) -> str:
        try:
            return background.wait(services.home, threads, run.run_id, DEADLINE_S).state
        except SandboxError as error:
            return error.brief

    run = background.start(services, question(desk), Watch(), work)
    started.set()
    expected = "no" if fails else "finished"
    assert [answer(services.background_threads) for _ in range(2)] == [expected] * 2
    assert find_background_run(services.home, run.run_id).state == "running"
    assert answer(BackgroundThreads()) == (
        f"{run.run_id} has no result: the process that ran it was killed, or ended without saving one"
    )
    with suppress(SandboxError):
        assert background.stop(services, run.run_id).state == "finished"
    disk.is_full = False
    assert answer(services.background_threads) == expected
    assert answer(BackgroundThreads()) == expected


def test_progress_that_cannot_be_saved_ends_no_run(
    desk: Desk, disk: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once. Control: the end is saved when there is space again."""
    services, started = desk.workbench._services, threading.Event()

    def work(watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        assert started.wait(DEADLINE_S)
        disk.is_full = True
        for position in (2, 1):
            watch.queued(position)
        disk.is_full = False
        return ()

    run = background.start(services, question(desk), Watch(), work)
    started.set()
    assert background.wait(services.home, services.background_threads, run.run_id, DEADLINE_S).state == "finished"
    assert disk.refused == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"the progress of {run.run_id} cannot be saved: No space left on device"
    ]
    assert find_background_run(services.home, run.run_id).state == "finished"


def test_a_run_whose_first_record_cannot_be_saved_does_not_start(desk: Desk, disk: FullDisk) -> None:
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        background.start(desk.workbench._services, question(desk), Watch(), lambda _watch, _run_id: pytest.fail("ran"))


def test_only_so_many_results_wait_in_memory(desk: Desk) -> None:
    """The oldest is dropped."""
    threads, record = BackgroundThreads(), _record(desk, state="finished")
    for number in range(MAX_BACKGROUND_RUNS + 1):

        def end(thread: BackgroundThread) -> None:
            thread.unsaved = record

        threads.start(f"run-{number}", end).ended.wait(DEADLINE_S)
    assert threads.find_unsaved("run-0") is None
    assert threads.find_unsaved("run-1") is record


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, ErrorCode.QUOTA_EXCEEDED), (errno.EIO, ErrorCode.INTERNAL)],
    ids=["shortage", "control"],
)
def test_a_shortage_of_the_host_is_no_defect(desk: Desk, number: int, code: ErrorCode) -> None:
    services = desk.workbench._services
    record = _record(desk)

    def work(_watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        raise OSError(number, os.strerror(number))

    background._run(services.home, record, Watch(), work, BackgroundThread(record.run_id))
    failure = find_background_run(services.home, record.run_id).failure
    assert failure is not None
    assert failure.code is code


def test_a_listener_that_fails_ends_no_run_in_the_background(desk: Desk) -> None:
    def fail(_stream: str, _chunk: bytes) -> None:
        raise ValueError("boom")

    def work(watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        assert watch.follow is not None
        watch.follow("stdout", b"said\n")
        return ()

    parts = desk.workbench._services
    run = background.start(parts, question(desk), Watch(follow=fail), work)
    assert background.wait(parts.home, parts.background_threads, run.run_id, DEADLINE_S).state == "finished"


def test_an_exploration_of_an_approved_state_asks_about_that_state(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was any state, so a second approved one got the answer of the first."""
    asked = list[str | None]()
    monkeypatch.setattr(background, "start", lambda _s, question, *_: asked.append(question.expected_tree))
    patch = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n"
    for tree in ("a" * 40, "b" * 40):
        desk.workbench.start_exploration(desk.task.id, {"p": patch}, expected_tree=tree)
    assert asked == ["a" * 40, "b" * 40]
