"""The journal: every operation on a task, refused ones too, and nothing that must not be in it. Ids: THREATS F, P."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.command import SANDBOX
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.models import Actor, JournalEntry
from sandbox.store import journal, journal_order
from sandbox.store.guest_times import mark_guest_running
from sandbox.store.home import Home
from sandbox.store.journal_chain import sha256, walk_chain
from sandbox.workbench import Workbench
from sandbox.workbench.controller.journaling import digest_arguments, record_operation
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.long_journal import make_entry, write_journal

CANARY = "canary-5f2c"
TASK = "task-00000000-0000-0000-0000-000000000000"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "sandbox-home")
    home.prepare()
    return home


def entry(operation: str = "commit", result: str = "ok") -> JournalEntry:
    return JournalEntry(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor=Actor.PYTHON,
        operation=operation,
        arguments=sha256_of(b""),
        result=result,
        duration_s=0.1,
    )


# --- the file


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were fsynced."""
    names: list[str] = []
    real = os.fsync

    def spy(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fsync", spy)
    return names


def test_an_edit_syncs_its_file_and_leaves_the_journal_to_the_next_operation(desk: Desk, synced: list[str]) -> None:
    name = f"{desk.task.id}.jsonl"
    desk.workbench.write_file(desk.task.id, "new", "x", None)
    assert any(n.startswith(".sandbox-write-") for n in synced)
    assert name not in synced
    desk.workbench.snapshot(desk.task.id)
    assert name in synced
    assert [e.operation for e in journal.read_entries(Home(desk.home), desk.task.id)] == ["create", "write", "snapshot"]


def test_a_check_in_the_tasks_own_files_waits_for_no_disk(desk: Desk, synced: list[str]) -> None:
    services = desk.workbench._services
    with (
        record_operation(services, desk.task.id, "check", {}),
        mark_guest_running(services.home.guest_mark(desk.task.id), lambda: 7),
    ):
        pass
    assert synced == []
    with record_operation(services, desk.task.id, "verify", {}):
        pass
    assert synced == [f"{desk.task.id}.jsonl"], "the control"
    assert [e.operation for e in journal.read_entries(services.home, desk.task.id)] == ["create", "check", "verify"]


def test_entries_come_back_in_order_from_a_private_file(home: Home) -> None:
    assert journal.read_entries(home, TASK) == ()
    for name in ("a", "b", "c"):
        journal.append_entry(home, TASK, entry(name))
    assert [e.operation for e in journal.read_entries(home, TASK)] == ["a", "b", "c"]
    assert home.journal(TASK).stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["schema_version"] for line in home.journal(TASK).read_text().splitlines()] == [1, 1, 1]


def test_a_new_journal_is_on_disk_with_its_name(home: Home, synced: list[str]) -> None:
    for _ in range(2):
        journal.append_entry(home, TASK, entry())
    assert synced == [f"{TASK}.jsonl", "journal", f"{TASK}.jsonl"]


@pytest.mark.parametrize(("most_bytes", "most"), [(1, 0), (900, 2), (10_000, 9)])
def test_recent_entries_are_the_last_ones_newest_first(
    home: Home, monkeypatch: pytest.MonkeyPatch, most_bytes: int, most: int
) -> None:
    assert list(journal.read_recent_entries(home, TASK)) == []
    monkeypatch.setattr(journal, "RECENT_BYTES", most_bytes)
    for number in range(9):
        journal.append_entry(home, TASK, entry(f"operation-{number}"))
        with home.journal(TASK).open("ab") as stream:
            stream.write(b"damaged\n")
    found = list(journal.read_recent_entries(home, TASK))
    assert found == list(journal.read_entries(home, TASK))[::-1][: len(found)]
    assert len(found) == most


@pytest.mark.parametrize("limit", [0, 1, 4, 9, 10, 100])
def test_the_last_entries_are_the_end_of_all_entries(home: Home, limit: int, caplog: pytest.LogCaptureFixture) -> None:
    assert journal.read_last_entries(home, TASK, limit) == ()
    for number in range(9):
        journal.append_entry(home, TASK, entry(f"operation-{number}"))
        with home.journal(TASK).open("ab") as stream:
            stream.write(b"damaged\n")
    assert journal.read_last_entries(home, TASK, limit) == journal.read_entries(home, TASK)[max(0, 9 - limit) :]
    warned = [f"the journal of {TASK} has {number} damaged lines" for number in (min(limit + 1, 9), 9)]
    assert caplog.messages == warned


MEASURE = """
import re, sys
from datetime import timedelta
from pathlib import Path
from sandbox.store import journal, journal_order
from sandbox.store.home import Home
from sandbox.store.journal_chain import sha256, walk_chain
from sandbox.workbench.controller import audit
from tests.unit.long_journal import START, make_entry

def peak_kb():
    return int(re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])

home, task, entries = Home(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
late = START + timedelta(seconds=entries - 50)
before = peak_kb()
for name, use in {
    "newest": lambda: len(journal.read_last_entries(home, task, 100)),
    "recent": lambda: next(journal.read_recent_entries(home, task)).seq,
    "append": lambda: journal.append_entry(home, task, make_entry(entries)).seq,
    "export": lambda: sum(1 for _ in audit.export_records(home, late, None)),
    "verify": lambda: int(audit.verify_journals(home).intact),
    "all": lambda: len(journal.read_entries(home, task)),
}.items():
    print(name, use(), peak_kb() - before)
"""


def test_s09_a_long_journal_is_read_in_bounded_memory(home: Home) -> None:
    """34 MB in 8,000 entries, each of them anchored. The control reads all of them at once."""
    entries, names = 8_000, tuple(f"{number:0200}" for number in range(20))
    write_journal(home.journal(TASK), (make_entry(n).model_copy(update={"names": names}) for n in range(entries)))
    with home.journal(TASK).open("rb") as stream:
        heads = [sha256(line.rstrip(b"\n")) for line in stream]
    noted = ({"journal": TASK, "seq": str(seq), "sha256": head} for seq, head in enumerate(heads, start=1))
    anchor = make_entry(0).model_copy(update={"operation": "anchor"})
    write_journal(home.journal(journal.HOME_JOURNAL), (anchor.model_copy(update={"facts": facts}) for facts in noted))
    argv = [sys.executable, "-c", MEASURE, str(home.root), TASK, str(entries)]
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - where the package is
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60, env=environ)
    found = {name: (int(value), int(kb)) for name, value, kb in map(str.split, done.stdout.splitlines())}
    assert {name: value for name, (value, _) in found.items()} == {
        "newest": 100, "recent": entries, "append": entries + 1, "export": 51, "verify": 1, "all": entries + 1,
    }  # fmt: skip
    assert found.pop("all")[1] > 30_000, "void"
    assert {name: kb for name, (_, kb) in found.items() if kb > 10_000} == {}


@given(cut=st.integers(min_value=0, max_value=400))
def test_p_a_torn_last_line_costs_one_entry_and_spoils_no_other(home: Home, cut: int) -> None:
    home.journal(TASK).unlink(missing_ok=True)
    journal.append_entry(home, TASK, entry("first"))
    journal.append_entry(home, TASK, entry("torn"))
    text = home.journal(TASK).read_bytes()
    first = text.index(b"\n") + 1
    home.journal(TASK).write_bytes(text[: min(first + cut, len(text))])
    whole = min(first + cut, len(text)) >= len(text) - 1  # its line break is no part of an entry
    journal.append_entry(home, TASK, entry("after"))
    assert [e.operation for e in journal.read_entries(home, TASK)] == ["first", *(["torn"] if whole else []), "after"]


@pytest.mark.parametrize(
    "line", [b"not json", b"[]", b"{}", b"\xff", b'{"schema_version":2}', b'{"schema_version":1,"at":1}', b"null", b"1"]
)
def test_a_damaged_line_is_left_out(home: Home, line: bytes) -> None:
    journal.append_entry(home, TASK, entry("a"))
    with home.journal(TASK).open("ab") as stream:
        stream.write(line + b"\n")
    journal.append_entry(home, TASK, entry("b"))
    assert [e.operation for e in journal.read_entries(home, TASK)] == ["a", "b"]


def test_a_planted_link_is_not_followed(home: Home, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine\n")
    home.journal(TASK).symlink_to(tmp_path / "victim")
    with refused(ErrorCode.INTERNAL):
        journal.append_entry(home, TASK, entry())
    assert (tmp_path / "victim").read_bytes() == b"mine\n"


def test_processes_share_a_journal_and_kill_9_loses_no_line_of_others(home: Home) -> None:
    """A kill leaves to the kernel what was written, synced or not. So nothing here waits for the disk, on which other
    tests work, and the processes import no more than they need: how long both take is no part of the claim.
    """
    code = (
        "import sys, time; from pathlib import Path; from sandbox.store import journal; from sandbox.store.home import "
        "Home; from tests.unit.long_journal import make_entry\n"
        "home, name = Home(Path(sys.argv[1])), sys.argv[2]\n"
        "def append(operation):\n"
        "    entry = make_entry(0).model_copy(update={'operation': operation})\n"
        f"    journal.append_entry(home, {TASK!r}, entry, synced=False)\n"
        "for n in range(int(sys.argv[3])): append(f'{name}-{n}')\n"
        "if name == 'victim': append('victim-more'); print('at work', flush=True)\n"
        "while name == 'victim': append('victim-more'); time.sleep(0.001)  # the others get the lock in between\n"
    )
    argv = [sys.executable, "-c", code, str(home.root)]
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - where the package is
    with ExitStack() as ends:

        def start(name: str, entries: int) -> subprocess.Popen[bytes]:
            command = [*argv, name, str(entries)]
            process = ends.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, env=environ))
            ends.callback(process.kill)  # one that is left would warn in another test
            return process

        victim = start("victim", 1)
        assert victim.stdout is not None
        victim.stdout.readline()
        codes = [writer.wait(timeout=60) for writer in [start(str(n), 40) for n in range(2)]]
        victim.kill()
    assert codes == [0, 0]
    found = [e.operation for e in journal.read_entries(home, TASK)]
    for name in ("0", "1"):
        assert [o for o in found if o.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(40)]
    assert "victim-more" in found


# --- what is written


def test_each_operation_is_one_line_with_its_states(desk: Desk) -> None:
    workbench, task = desk.workbench, desk.task.id
    patch = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    old = sha256_of(b"one\ntwo\n")
    result = workbench.apply_patch(task, patch, {"f": old})
    with refused(ErrorCode.STALE_HASH):
        workbench.apply_patch(task, patch, {"f": old})
    taken = workbench.snapshot(task, "label")
    commit = workbench.commit(task, "message")
    restored = workbench.restore(task, "base")
    forked = workbench.fork_task(task)
    with refused(ErrorCode.NOT_FOUND):
        workbench.run_checks(task, ["nonsense"])
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        workbench.commit(workbench.create_task(desk.repo_id).id, "empty")
    push = workbench.push(task)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        workbench.close_task(task, delete_worktree=True)
    workbench.close_task(task)
    log = workbench.log(task)
    assert [(e.operation, e.result) for e in log] == [
        ("create", "ok"), ("patch", "ok"), ("patch", "stale_hash"), ("snapshot", "ok"), ("commit", "ok"),
        ("restore", "ok"), ("fork", "ok"), ("check", "not_found"), ("push", "ok"), ("close", "dirty_workspace"),
        ("close", "ok"),
    ]  # fmt: skip
    by_name = {e.operation: e for e in log if e.result == "ok"}
    assert by_name["patch"].files == result.files
    assert by_name["patch"].names == ("f",)
    assert by_name["snapshot"].after == taken.tree
    assert (by_name["commit"].before, by_name["commit"].after) == (commit.tree, commit.tree)
    assert commit.commit in by_name["commit"].names
    assert (by_name["restore"].before, by_name["restore"].after) == (commit.tree, restored.tree)
    assert restored.previous.id in by_name["restore"].names
    assert forked.id in by_name["fork"].names
    assert push.commit in by_name["push"].names
    assert {e.actor for e in log} == {Actor.PYTHON}
    assert [e.at for e in log] == sorted(e.at for e in log)
    (first,) = workbench.log(forked.id)
    assert (first.seq, by_name["fork"].seq) == (1, 7), "each journal has a chain of its own"
    assert first.model_copy(update={"seq": 7, "prev": by_name["fork"].prev}) == by_name["fork"]


def test_the_command_line_is_another_actor(desk: Desk) -> None:
    argv = [*SANDBOX, "--home", str(desk.home), "task", "snapshot", desk.task.id, "--json"]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=60)
    (_, last) = desk.workbench.log(desk.task.id)
    assert (last.operation, last.actor) == ("snapshot", Actor.CLI)
    assert json.loads(done.stdout)["id"] in last.names


def test_f_no_content_message_label_or_prompt_is_in_the_journal(desk: Desk) -> None:
    """Control: the same scan finds the canary where it belongs, in the worktree and the task's record."""
    workbench = desk.workbench
    task = workbench.create_task(desk.repo_id, f"prompt {CANARY}").id
    root = desk.worktree(workbench.task(task))
    patch = f"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+{CANARY}\n".encode()
    workbench.apply_patch(task, patch, {"f": sha256_of(b"one\ntwo\n")})
    workbench.snapshot(task, CANARY)
    workbench.commit(task, f"message {CANARY}")
    workbench.fork_task(task, prompt=CANARY)
    with refused(ErrorCode.PATCH_REJECTED, ErrorCode.STALE_HASH):
        workbench.apply_patch(task, CANARY.encode(), {"f": None})
    text = desk.workbench._services.home.journal(task).read_text()
    assert len(text.splitlines()) == 6
    assert CANARY not in text
    assert CANARY in (root / "f").read_text(), "void"
    assert CANARY in desk.workbench._services.home.task(task).read_text(), "void"


def test_the_digest_is_of_the_arguments_not_of_their_order() -> None:
    one = digest_arguments({"a": 1, "patch": b"x", "h": {"p": None, "q": "r"}})
    assert one == digest_arguments({"h": {"q": "r", "p": None}, "patch": b"x", "a": 1})
    assert (
        len({one, digest_arguments({"a": 1, "patch": b"y", "h": {"p": None, "q": "r"}}), digest_arguments({"a": 1})})
        == 3
    )


@pytest.mark.parametrize("task_id", ["../../escaped", "task-../x", "", TASK, "task-\n", f"{TASK}/../x"])
def test_an_operation_on_no_task_of_ours_writes_nothing(desk: Desk, task_id: str) -> None:
    before = sorted(desk.home.rglob("*"))
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.commit(task_id, "x")
    assert [p for p in sorted(desk.home.rglob("*")) if p not in before and "locks" not in str(p)] == []


@pytest.mark.parametrize(
    ("error", "result"), [(KeyboardInterrupt(), "interrupted"), (ValueError("x"), "internal")], ids=["ctrl-c", "defect"]
)
def test_what_ends_without_a_typed_error_is_written_too(desk: Desk, error: BaseException, result: str) -> None:
    with pytest.raises(type(error)), record_operation(desk.workbench._services, desk.task.id, "x", {}):
        raise error
    assert desk.workbench.log(desk.task.id)[-1].result == result


def _full(_home: Home, _task_id: str, _entry: JournalEntry, **_more: object) -> None:
    raise SandboxError(ErrorCode.INTERNAL, "The journal cannot be written")


def test_a_journal_that_cannot_be_written_is_an_error_but_hides_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "append_entry", _full)
    with refused(ErrorCode.INTERNAL):
        desk.workbench.snapshot(desk.task.id)
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        desk.workbench.commit(desk.task.id, "x")


def test_long_lists_of_names_are_clipped(desk: Desk) -> None:
    names = [f"{n}-{'x' * 500}" for n in range(100)]
    with record_operation(desk.workbench._services, desk.task.id, "x", {}, names=names):
        pass
    last = desk.workbench.log(desk.task.id)[-1]
    assert len(last.names) == 20
    assert max(map(len, last.names)) == 200


def test_a_name_that_no_file_could_hold_hides_no_error(desk: Desk) -> None:
    with refused(ErrorCode.UNSAFE_PATH):
        desk.workbench.write_file(desk.task.id, "a\udcff\n", "x", None)
    assert desk.workbench.log(desk.task.id)[-1].names == ("a\\udcff\n",)


READS: dict[str, Callable[[Workbench, str], object]] = {
    "status": lambda w, t: w.status(t),
    "diff": lambda w, t: w.diff(t),
    "read": lambda w, t: w.read_file(t, "f"),
    "log": lambda w, t: w.log(t),
    "snapshots": lambda w, t: w.snapshots(t),
}


@pytest.mark.parametrize("name", READS)
def test_looking_is_not_journalled(desk: Desk, name: str) -> None:
    READS[name](desk.workbench, desk.task.id)
    assert [e.operation for e in desk.workbench.log(desk.task.id)] == ["create"]


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "line", [DEEP, b'{"schema_version":1,"seq":2,"prev":"sha256:' + b"0" * 64 + b'","facts":' + DEEP]
)
def test_a_line_that_is_nested_too_deeply_is_a_damaged_line(home: Home, line: bytes) -> None:
    journal.append_entry(home, TASK, entry("push"))
    with home.journal(TASK).open("ab") as stream:
        stream.write(line + b"\n")
    assert [one.operation for one in journal.read_entries(home, TASK)] == ["push"]
    assert [one.operation for one in journal.read_last_entries(home, TASK, 5)] == ["push"]
    journal.append_entry(home, TASK, entry("commit"))
    assert [one.operation for one in journal.read_entries(home, TASK)] == ["push", "commit"]
    assert list(journal_order.read_by_time(home.journal(TASK), datetime(2000, 1, 1, tzinfo=UTC)))
    assert list(walk_chain(home.journal(TASK).read_bytes().splitlines(keepends=True)))
