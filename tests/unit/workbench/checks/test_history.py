"""Past runs and their logs, through the workbench and the command line."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, Limits, Usage, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

OUTPUT = b"\x1b]0;title\x07\x1b[31mred\x1b[0m \xff\xe2\x80\xae\r\nend"


class Past:
    """A desk whose task has three runs, and whose repository has one."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.home = desk, Home(desk.home)
        self.task_id = desk.task.id
        self.ids = [self.add(self.task_id, n) for n in range(3)]
        self.of_repository = self.add(desk.repo_id, 9)

    def add(self, owner: str, number: int) -> str:
        run_id = f"run-{number:032x}"
        folder = self.home.logs(owner)
        folder.mkdir(exist_ok=True)
        (folder / f"{run_id}.stdout").write_bytes(OUTPUT)
        (folder / f"{run_id}.stderr").write_bytes(b"err %d\n" % number)
        run = CheckRun(
            run_id=run_id,
            check_id="test",
            task_id=owner if owner.startswith("task-") else None,
            verdict=Verdict.FAILED,
            exit_code=1,
            signal=None,
            started_at=datetime(2026, 1, 2, tzinfo=UTC) + timedelta(hours=number),
            wall_time_s=1.5,
            usage=Usage(limits=Limits(output_bytes=1000)),
            stdout_tail="",
            stderr_tail="",
            stdout_bytes=5000 if number == 2 else len(OUTPUT),
            stderr_bytes=6,
            truncated=number == 2,
            tree="a" * 40,
            clean_room=False,
            cached=False,
            image_digest="sha256:" + "0" * 64,
            runtime="runc",
            report=None,
        )
        save_run(self.home, owner, run)
        ended = run.started_at.timestamp() + run.wall_time_s
        os.utime(folder / f"{run_id}.json", (ended, ended))
        return run_id

    def record(self, run_id: str) -> Path:
        return self.home.logs(self.task_id) / f"{run_id}.json"


@pytest.fixture
def past(upstream: Upstream, tmp_path: Path) -> Iterator[Past]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield Past(desk)


pytestmark = pytest.mark.slow  # a workbench with real git for each


def test_runs_are_listed_newest_first_and_only_as_many_as_wanted(past: Past) -> None:
    workbench = past.desk.workbench
    assert [r.run_id for r in workbench.runs(past.task_id)] == past.ids[::-1]
    assert [r.run_id for r in workbench.runs(past.task_id, 2)] == past.ids[:0:-1]
    assert [r.run_id for r in workbench.runs(past.desk.repo_id)] == [past.of_repository]


def test_a_damaged_record_hides_no_other(past: Past) -> None:
    for damage in (b"", b"{", b'{"schema_version": 1, "run_id": 7}', b"\xff", b'{"schema_version": 99}'):
        past.record(past.ids[1]).write_bytes(damage)
        assert [r.run_id for r in past.desk.workbench.runs(past.task_id)] == [past.ids[2], past.ids[0]]
        with pytest.raises(SandboxError) as caught:
            past.desk.workbench.run_log(past.task_id, past.ids[1])
        assert caught.value.code is ErrorCode.INTERNAL, damage


def test_i09_a_log_is_safe_to_show_and_exact_when_raw(past: Past) -> None:
    workbench = past.desk.workbench
    shown = workbench.run_log(past.task_id, past.ids[0])
    assert (shown.content, shown.encoding) == ("red \ufffd\\u202e\nend", "utf-8")
    raw = workbench.run_log(past.task_id, past.ids[0], raw=True)
    assert base64.b64decode(raw.content) == OUTPUT
    assert workbench.run_log(past.task_id, past.ids[0], "stderr").content == "err 0\n"


def test_without_an_id_it_is_the_newest_run(past: Past) -> None:
    found = past.desk.workbench.run_log(past.task_id)
    assert (found.run_id, found.total_bytes, found.truncated) == (past.ids[2], 5000, True)


def test_closed_tasks_still_answer(past: Past) -> None:
    past.desk.workbench.close_task(past.task_id, delete_worktree=True, discard=True)
    assert len(past.desk.workbench.runs(past.task_id)) == 3
    assert past.desk.workbench.run_log(past.task_id).run_id == past.ids[2]


NO_RUNS = (
    "..",
    "../../tasks/x",
    "/etc/passwd",
    "run-",
    "run-" + "9" * 31,
    "run-" + "G" * 32,
    "run-" + "f" * 32,
    "\0",
)
NO_OWNERS = ("..", "", "task-", "task-../x", "../logs", "/", "nobody")


def test_what_is_no_run_of_the_task_is_not_found(past: Past) -> None:
    for run_id in NO_RUNS:
        with pytest.raises(SandboxError) as caught:
            past.desk.workbench.run_log(past.task_id, run_id)
        assert caught.value.code is ErrorCode.NOT_FOUND, run_id


def test_a_run_that_is_not_there_is_answered_with_the_newest_ones(past: Past) -> None:
    with pytest.raises(SandboxError) as caught:
        past.desk.workbench.run_log(past.task_id, "test")
    newest = [run.run_id for run in past.desk.workbench.runs(past.task_id)]
    told = caught.value.details.splitlines()
    assert [line.split()[0] for line in told[1:]] == newest
    assert {line.split()[1] for line in told[1:]} == {"test"}
    fresh = past.desk.workbench.create_task(past.desk.repo_id).id
    with pytest.raises(SandboxError) as caught:
        past.desk.workbench.run_log(fresh, "run-1")
    assert caught.value.details == "No check of it has run yet."


def test_an_unknown_run_in_place_of_its_owner_is_named_as_a_run(past: Past) -> None:
    for name in ("run-nosuch", "run-" + "f" * 32):
        with pytest.raises(SandboxError) as caught:
            past.desk.workbench.run_log(name)
        assert (caught.value.code, caught.value.brief) == (ErrorCode.NOT_FOUND, f"There is no run '{name}'")


def test_a_run_of_another_owner_is_not_found(past: Past) -> None:
    with pytest.raises(SandboxError) as caught:
        past.desk.workbench.run_log(past.task_id, past.of_repository)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_an_owner_is_a_task_or_a_repository(past: Past) -> None:
    workbench = past.desk.workbench
    for owner in NO_OWNERS:
        for attempt in (workbench.runs, workbench.run_log):
            with pytest.raises(SandboxError) as caught:
                attempt(owner)
            assert caught.value.code is ErrorCode.NOT_FOUND, owner
    assert caught.value.brief == "There is no task, run or repository 'nobody'"


def test_a_log_that_is_gone_and_a_task_without_runs_say_so(past: Past) -> None:
    past.record(past.ids[0]).with_suffix(".stdout").unlink()
    fresh = past.desk.workbench.create_task(past.desk.repo_id).id
    assert past.desk.workbench.runs(fresh) == ()
    for attempt in (
        lambda: past.desk.workbench.run_log(past.task_id, past.ids[0]),
        lambda: past.desk.workbench.run_log(fresh),
    ):
        with pytest.raises(SandboxError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_the_command_line_lists_and_prints(past: Past, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def command(*words: str) -> bytes:
        assert main(["--home", str(past.desk.home), *words]) == 0
        return capfdbinary.readouterr().out

    listed = command("check", "runs", past.task_id).decode().splitlines()
    assert [line.split()[0] for line in listed] == ["RUN", *past.ids[::-1]]
    assert "failed" in listed[1]
    assert len(json.loads(command("check", "runs", past.task_id, "--limit", "1", "--json"))["runs"]) == 1
    assert command("check", "log", past.task_id, past.ids[0]) == "red \ufffd\\u202e\nend\n".encode()
    assert command("check", "log", past.task_id, past.ids[0], "--raw") == OUTPUT
    assert command("check", "log", past.task_id, "--stream", "stderr") == b"err 2\n"
    document = json.loads(command("check", "log", past.task_id, past.ids[0], "--raw", "--json"))
    assert base64.b64decode(document["content"]) == OUTPUT


def leave(past: Past, owner: str, nonce: str = "f" * 12) -> str:
    """The log of a run without a record: of a controller with this nonce, which was killed or is at it."""
    run_id = f"run-{nonce}{'0' * 20}"
    past.home.logs(owner).mkdir(exist_ok=True)
    for stream in ("stdout", "stderr"):
        (past.home.logs(owner) / f"{run_id}.{stream}").write_bytes(b"begun\n")
    return run_id


def test_the_log_of_a_killed_run_is_printed_however_it_is_named(past: Past, capfd: pytest.CaptureFixture[str]) -> None:
    fresh = past.desk.workbench.create_task(past.desk.repo_id).id
    killed = leave(past, fresh)
    for words in ([fresh], [killed], [fresh, killed]):
        assert main(["--home", str(past.desk.home), "check", "log", *words]) == 0
        shown = capfd.readouterr()
        assert (shown.out, "ended without saving one" in shown.err) == ("begun\n", True)
    found = past.desk.workbench.run_log(killed)
    assert (found.finished, found.check_id, found.total_bytes, found.truncated) == (False, None, 6, False)
    assert past.desk.workbench.run_log(past.task_id).finished


@pytest.mark.parametrize("is_alive", [False, True])
def test_without_an_id_it_is_the_run_that_began_last_whether_it_has_ended(past: Past, is_alive: bool) -> None:
    """Control: a log that was begun before the newest run, which has ended since."""
    workbench = past.desk.workbench
    left = leave(past, past.task_id, workbench._services.presence.nonce) if is_alive else leave(past, past.task_id)
    stdout, stderr = (past.home.logs(past.task_id) / f"{left}.{kind}" for kind in ("stdout", "stderr"))
    for hour, newest in ((3, left), (1.5, past.ids[2])):
        begun = (datetime(2026, 1, 2, tzinfo=UTC) + timedelta(hours=hour)).timestamp()
        os.utime(stderr, (begun, begun))  # it has written to stdout since
        assert workbench.run_log(past.task_id).run_id == newest
    os.utime(stderr, None)
    with pytest.raises(SandboxError):
        workbench.test_results(workbench.find_run(past.task_id))
    stdout.unlink()
    stderr.unlink()
    assert workbench.run_log(past.task_id).run_id == past.ids[2]


def test_of_runs_that_overlapped_it_is_the_one_that_began_last(past: Past) -> None:
    for hours, run_id in enumerate(past.ids[::-1]):
        ended = (datetime(2026, 1, 2, tzinfo=UTC) + timedelta(hours=3 + hours)).timestamp()
        os.utime(past.record(run_id), (ended, ended))  # the one that began first ended last
    assert past.desk.workbench.run_log(past.task_id).run_id == past.ids[2]


def test_a_run_of_a_live_process_is_not_said_to_have_ended(past: Past, capfd: pytest.CaptureFixture[str]) -> None:
    for nonce, said in (
        (past.desk.workbench._services.presence.nonce, "The check is still running: there may be more output."),
        ("f" * 12, "has no result: the process that ran it was killed, or ended without saving one."),
    ):
        for more in ([], ["--lines", "1:"]):
            left = leave(past, past.task_id, nonce)
            assert main(["--home", str(past.desk.home), "check", "log", left, *more]) == 0
            assert capfd.readouterr().err.strip().splitlines()[-1].removeprefix(f"{left} ") == said


def test_a_killed_run_has_no_result_and_one_that_runs_has_none_yet(past: Past) -> None:
    workbench = past.desk.workbench
    attempts: tuple[Callable[[str], object], ...] = (workbench.past_run, workbench.test_results, workbench.usage)
    killed, running = leave(past, past.task_id), leave(past, past.task_id, workbench._services.presence.nonce)
    for attempt in attempts:
        with refused(ErrorCode.NOT_FOUND) as caught:
            attempt(killed)
        assert caught.value.brief.startswith(f"{killed} has no result: the process that ran it was killed, or ended")
        assert f"sandbox check log {killed}" in caught.value.hint
        with refused(ErrorCode.CONFLICT) as caught:
            attempt(running)
        assert "has not ended" in caught.value.brief
