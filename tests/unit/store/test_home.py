"""State that a crash cannot tear and two processes cannot lose. Ids: THREATS section P."""

from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import random
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Host, Repository, Task, TaskStatus, WorkspaceKind
from sandbox.models.storage import MeasuredStorage
from sandbox.store import home as store
from sandbox.store.home import GIT_MASK, Home, default_home, read_json, write_atomically, write_json
from sandbox.store.records import (
    find_repository,
    find_task,
    list_repositories,
    list_tasks,
    save_repository,
    save_task,
)
from sandbox.store.task_table import list_task_rows
from tests.unit.conftest import refused

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TASK_ID = "task-00000000-0000-4000-8000-000000000000"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


def test_the_home_is_absolute_wherever_it_comes_from(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(surroundings)
    assert default_home({"SANDBOX_HOME": "here"}) == surroundings / "here"
    assert default_home({"SANDBOX_HOME": "~/there"}) == surroundings / "there"
    assert default_home({}).is_relative_to(surroundings)


@pytest.mark.parametrize("named", ["~", "~/x", "~no-such-user/x"])
def test_a_home_of_nobody_is_wrong_input(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a uid without an account and without HOME; `~` is no directory to make here."""

    def nobody(*_: object) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with refused(ErrorCode.INVALID_INPUT) as found:
        default_home({"SANDBOX_HOME": named})
    assert "--home" in found.value.hint
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with refused(ErrorCode.INVALID_INPUT):
        default_home({})


def test_only_a_missing_file_is_no_record(tmp_path: Path) -> None:
    """Control: what is only cached may be made again then, too."""
    path = tmp_path / "record.json"
    assert store.read_record(path, MeasuredStorage) is None
    for damage in (b"", b'{"schema_version": 2}', b'{"schema_version": 1, "unknown": 1}'):
        path.write_bytes(damage)
        with refused(ErrorCode.INTERNAL) as caught:
            store.read_record(path, MeasuredStorage)
        assert str(path) in caught.value.details
        assert store.read_cached_record(path, MeasuredStorage) is None
    path.unlink()
    path.mkdir()
    with refused(ErrorCode.INTERNAL):
        store.read_record(path, MeasuredStorage)


def repository(repo_id: str, **changes: Any) -> Repository:
    fields: dict[str, Any] = {
        "id": repo_id,
        "remote_url": "https://host/o/r.git",
        "host": Host.UNKNOWN,
        "hostname": "host",
        "owner": "o",
        "name": "r",
        "default_branch": "main",
        "profile": "generic",
        "created_at": NOW,
    }
    return Repository(**{**fields, **changes})


def task(task_id: str = TASK_ID, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "id": task_id,
        "repo_id": "host-o-r",
        "prompt": "p",
        "base_branch": "main",
        "branch": "space-agent/x",
        "base_commit": "a" * 40,
        "workspace_kind": WorkspaceKind.WORKTREE,
        "worktree_path": Path("/x"),
        "status": TaskStatus.WORKING,
        "head_commit": "a" * 40,
        "created_at": NOW,
    }
    return Task(**{**fields, **changes})


def forked(act: Callable[[], object]) -> int:
    """Run in a child process; returns its pid."""
    child = os.fork()
    if child:
        return child
    try:
        act()
    finally:
        os._exit(0)


# --- the home


def test_q07_a_home_is_private_whatever_it_was_before(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o777)
    made = Home(tmp_path / "home")
    made.prepare()
    made.prepare()
    folders = [made.root, *(p for p in made.root.rglob("*") if p.is_dir())]
    assert {stat.S_IMODE(p.stat().st_mode) for p in folders} == {0o700}


@pytest.mark.parametrize(
    "make", [lambda p: p.write_bytes(b""), lambda p: p.symlink_to("/proc/1")], ids=["file", "proc"]
)
def test_a_home_that_cannot_be_used_is_invalid_input(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "home")
    with refused(ErrorCode.INVALID_INPUT) as caught:
        Home(tmp_path / "home").prepare()
    assert "--home" in caught.value.hint


def test_the_mask_is_kept_as_it_must_be(home: Home) -> None:
    assert home.git_mask.read_bytes() == GIT_MASK
    home.git_mask.chmod(0o600)
    home.git_mask.write_bytes(b"gitdir: /evil\n")
    assert home.git_mask.read_bytes() == GIT_MASK


def test_p12_a_copy_of_a_home_has_an_id_of_its_own(home: Home, tmp_path: Path) -> None:
    """By this id containers are found and removed: with the original's, a copy would end the original's checks."""
    first = home.instance_id
    shutil.copytree(home.root, tmp_path / "copy")
    (tmp_path / "link").symlink_to(home.root)
    copy = Home(tmp_path / "copy")
    assert copy.original_id == home.original_id
    assert len({first, copy.instance_id, copy.original_id}) == 3
    assert Home(home.root).instance_id == Home(tmp_path / "link").instance_id == first


def test_a_kept_value_that_is_not_fixed_stays_the_first(home: Home) -> None:
    for value in (b"one", b"two"):
        home.ensure_file("instance", value, fixed=False)
    assert (home.root / "instance").read_bytes() == b"one"


# --- atomic files


def test_a_file_is_written_with_its_mode_and_nothing_beside_it(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", b"one")
    write_atomically(tmp_path / "f", b"two", mode=0o400)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"two")]
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o400


@pytest.mark.parametrize("mask", [0, 0o077], ids=["000", "077"])
def test_q07_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    home = Home(tmp_path / "home")
    before = os.umask(mask)
    try:
        home.prepare()
        guests = [home.git_mask, home.ensure_file("hosts", b"localhost")]
        write_json(home.registry, {})
        guests[0].chmod(0o400)  # as an older version made it
        assert home.git_mask == guests[0]
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in guests} == {0o444}, "guests read them"
    assert stat.S_IMODE(home.registry.stat().st_mode) == 0o600
    assert {stat.S_IMODE(p.stat().st_mode) for p in home.root.rglob("*") if p.is_dir()} == {0o700}


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_p05_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "f", b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "f", b"new")
    monkeypatch.undo()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"old")]


def test_a_link_planted_at_the_target_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"x")
    (tmp_path / "f").symlink_to("victim")
    write_atomically(tmp_path / "f", b"new")
    assert (tmp_path / "victim").read_bytes() == b"x"


def torn_after_kills(write: Callable[[Path, dict[str, Any]], object], path: Path, kills: int) -> int:
    """How many of `kills` SIGKILLs in a loop of writes left a file that is not one of the documents."""
    document = {"data": ["x" * 100] * 3000}
    torn = 0
    for _ in range(kills):
        child = forked(lambda: [write(path, {**document, "n": n}) for n in range(10_000)])
        while not path.exists():
            time.sleep(0.001)
        time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - a moment, not a secret
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            found = json.loads(path.read_bytes())
            torn += found["data"] != document["data"]
        except ValueError:
            torn += 1
    return torn


def test_p01_a_killed_writer_never_leaves_a_torn_file(tmp_path: Path) -> None:
    def naive(path: Path, document: dict[str, Any]) -> None:
        with path.open("w") as stream:
            json.dump(document, stream)

    assert torn_after_kills(naive, tmp_path / "naive.json", 12) > 0, "the control never tore: this proves nothing"
    assert torn_after_kills(write_json, tmp_path / "ours.json", 12) == 0


DAMAGED = {
    "empty": b"",
    "cut": b'{"schema_version": 1, "a"',
    "no-version": b"{}",
    "other-version": b'{"schema_version": 2}',
    "version-text": b'{"schema_version": "1"}',
    "list": b"[]",
    "text": b'"x"',
    "number": b"1",
    "null": b"null",
    "no-utf-8": b'{"schema_version": 1, "a": "\xff"}',
    "nul": b"\0" * 100,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_p04_a_damaged_file_is_named_and_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with refused(ErrorCode.INTERNAL) as caught:
        read_json(path)
    assert "record.json" in caught.value.brief
    assert path.read_bytes() == content


def _replace_by_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def _replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root: a file has to belong to another user")
    os.chown(path, 12345, 12345)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (_replace_by_link, "a link"),
    "fifo": (_replace_by_fifo, "no regular file"),
    "folder": (_replace_by_folder, "no regular file"),
    "writable": (lambda path: path.chmod(0o666), "every user may write it"),
    "foreign": (_give_away, "it belongs to user 12345"),
}


@pytest.mark.parametrize(("spoil", "why"), HOSTILE.values(), ids=HOSTILE)
def test_p04_what_another_user_may_have_written_is_named_and_left_alone(
    spoil: Callable[[Path], object], why: str, home: Home
) -> None:
    saved, other = save_task(home, task()), save_task(home, task(TASK_ID[:-1] + "1"))
    assert find_task(home, saved.id) == saved  # the control
    path = home.task(saved.id)
    spoil(path)
    before = path.lstat()
    with refused(ErrorCode.INTERNAL) as caught:
        find_task(home, saved.id)
    assert path.name in caught.value.brief
    assert why in caught.value.details
    assert caught.value.hint
    assert path.lstat() == before
    assert [row.id for row in list_task_rows(home)] == [other.id]
    assert find_task(home, other.id) == other


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o644, 0o664])
def test_a_record_that_was_restored_with_another_mode_is_read(mode: int, home: Home) -> None:
    """The folder is private: only a mode that says that every user may write it is none of ours."""
    saved = save_task(home, task())
    home.task(saved.id).chmod(mode)
    assert find_task(home, saved.id) == saved


def test_records_of_a_mount_where_all_have_one_mode_are_read(home: Home) -> None:
    """Such as drvfs and CIFS: there a mode says no more of one file than of all."""
    saved = save_task(home, task())
    for path in (home.task(saved.id), home.task(saved.id).parent):
        path.chmod(0o777)
    assert find_task(home, saved.id) == saved


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files have to belong to another user")
def test_a_home_of_another_user_is_read_by_root(home: Home) -> None:
    saved = save_task(home, task())
    for path in (home.task(saved.id), home.task(saved.id).parent):
        os.chown(path, 12345, 12345)
    assert find_task(home, saved.id) == saved


def test_a_document_comes_back_without_its_version(tmp_path: Path) -> None:
    write_json(tmp_path / "f", {"a": "\u00e9\udcff"})
    assert json.loads((tmp_path / "f").read_bytes())["schema_version"] == store.SCHEMA_VERSION
    assert read_json(tmp_path / "f") == {"a": "\u00e9\udcff"}
    assert read_json(tmp_path / "none") is None


# --- locks


def counted(home: Home, *, locked: bool) -> int:
    """Two processes add 60 each to a counter. Without the lock both read it before one writes, once at least."""
    path = home.root / "counter"
    write_json(path, {"n": 0})
    both_have_read = multiprocessing.get_context("fork").Barrier(2)

    def add() -> None:
        for turn in range(60):
            with home.locked("counter") if locked else nullcontext():
                found = (read_json(path) or {})["n"]
                if turn == 0 and not locked:
                    both_have_read.wait(60)
                write_json(path, {"n": found + 1})

    for child in [forked(add) for _ in range(2)]:
        os.waitpid(child, 0)
    return int((read_json(path) or {})["n"])


def test_p02_no_increment_of_two_processes_is_lost_under_the_lock(home: Home) -> None:
    assert counted(home, locked=False) < 120, "the control lost nothing: this proves nothing"
    assert counted(home, locked=True) == 120


@pytest.mark.parametrize("name", ["settings-x/../../../out", "a\0b", "x" * 300, "é", "\ud800"], ids=ascii)
def test_s247_a_lock_is_in_the_home_or_refused(home: Home, name: str) -> None:
    with refused(ErrorCode.INVALID_INPUT), home.locked(name):
        pass
    assert not list(home.root.parent.rglob("*out*"))


def test_a_lock_that_is_held_is_a_conflict_naming_what_is_busy(home: Home) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with home.locked("repository-x"):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    try:
        with refused(ErrorCode.CONFLICT) as caught, home.locked("repository-x", timeout_s=0.05):
            pass
        with home.locked("repository-y", timeout_s=0.05):
            pass
    finally:
        leave.set()
        thread.join()
    assert "repository-x" in caught.value.brief
    with home.locked("repository-x", timeout_s=0.05):
        pass


def test_p06_the_lock_of_a_killed_process_is_free(home: Home, tmp_path: Path) -> None:
    def hold() -> None:
        with home.locked("t"):
            (tmp_path / "held").touch()
            time.sleep(60)

    child = forked(hold)
    while not (tmp_path / "held").exists():
        time.sleep(0.005)
    with refused(ErrorCode.CONFLICT), home.locked("t", timeout_s=0.05):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with home.locked("t", timeout_s=1):
        pass


def test_p06_children_do_not_inherit_a_lock(home: Home) -> None:
    with home.locked("t"):
        held = [p for p in Path("/proc/self/fd").iterdir() if p.is_symlink() and "t.lock" in str(p.readlink())]
        assert len(held) == 1
        assert not os.get_inheritable(int(held[0].name))


def test_a_lock_is_given_back_when_the_work_fails(home: Home) -> None:
    with pytest.raises(ZeroDivisionError), home.locked("t"):
        raise ZeroDivisionError
    with home.locked("t", timeout_s=0.05):
        pass


# --- records


def test_repositories_are_kept_by_id(home: Home) -> None:
    for repo_id in ("b", "a"):
        save_repository(home, repository(repo_id))
    save_repository(home, repository("b", profile="make"))
    assert [(r.id, r.profile) for r in list_repositories(home)] == [("a", "generic"), ("b", "make")]
    assert find_repository(home, "b") == repository("b", profile="make")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("github.com-owner-rep", "Did you mean: github.com-owner-repo?"), ("zzz", "Known: github.com-owner-repo")],
)
def test_an_unknown_repository_is_not_found_with_its_neighbours(wanted: str, words: str, home: Home) -> None:
    save_repository(home, repository("github.com-owner-repo"))
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_repository(home, wanted)
    assert words in caught.value.details
    assert caught.value.hint


def test_an_unknown_name_of_any_length_is_told_shortly(home: Home) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_repository(home, "x" * 10_000)
    assert len(caught.value.brief) < 200
    assert "none" in caught.value.details


@pytest.mark.parametrize(
    ("wanted", "command"),
    [
        (".", "run ."),
        ("./a b", "run './a b'"),
        ("https://x.example/y", "run https://x.example/y"),
        ("x", "task list --all"),
    ],
)
def test_a_directory_in_place_of_a_task_is_answered_with_the_command_for_it(
    wanted: str, command: str, home: Home
) -> None:
    """Control: a word that may be part of an id."""
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_task(home, wanted)
    assert f"`sandbox {command}`" in caught.value.hint


@pytest.mark.parametrize(
    "document",
    [{"repositories": 5}, {"repositories": [5]}, {"repositories": [{"id": "x"}]}, {"repositories": None}, {"other": 1}],
    ids=["number", "list", "incomplete", "null", "unknown"],
)
def test_p04_a_registry_of_wrong_shape_is_named(document: dict[str, Any], home: Home) -> None:
    write_json(home.registry, document)
    with refused(ErrorCode.INTERNAL) as caught:
        list_repositories(home)
    assert "registry.json" in caught.value.brief
    assert str(home.registry) in caught.value.details
    assert "pydantic" not in caught.value.details
    assert "Restore it from a copy" in caught.value.hint


def test_the_registry_is_validated_once_and_a_change_is_seen_at_once(home: Home) -> None:
    save_repository(home, repository("github.com-owner-repo"))
    first = list_repositories(home)
    assert list_repositories(home) is first
    content = home.registry.read_bytes()
    save_repository(home, repository("github.com-owner-other"))
    assert len(list_repositories(home)) == 2
    write_atomically(home.registry, content)
    assert list_repositories(home) == first


def test_tasks_come_oldest_first_and_a_damaged_one_is_skipped(home: Home) -> None:
    ids = [TASK_ID[:-1] + str(n) for n in range(3)]
    for day, task_id in zip((3, 1, 2), ids, strict=True):
        save_task(home, task(task_id, created_at=NOW.replace(day=day), repo_id="r" if day == 2 else "s"))
    damaged = TASK_ID[:-1] + "9"
    home.task(damaged).write_text("{")
    assert [t.id for t in list_tasks(home)] == [ids[1], ids[2], ids[0]]
    assert [t.id for t in list_tasks(home, "r")] == [ids[2]]
    assert [t.id for t in list_task_rows(home)] == [ids[1], ids[2], ids[0]]
    assert [t.id for t in list_task_rows(home, "r")] == [ids[2]]
    with refused(ErrorCode.INTERNAL):
        find_task(home, damaged)


def test_an_unknown_task_is_answered_with_the_newest_open_ones_and_the_number_of_the_others(home: Home) -> None:
    ids = [f"task-{digit * 8}-8d8e-4b1e-9d2c-1234567890ab" for digit in "fedcba98"]
    states = dict.fromkeys(ids[5:], TaskStatus.CLOSED) | {ids[0]: TaskStatus.SPARE}
    for day, task_id in enumerate(ids, 1):
        save_task(home, task(task_id, created_at=NOW.replace(day=day), status=states.get(task_id, TaskStatus.WORKING)))
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_task(home, "zzz")
    newest = [*reversed(ids[1:5]), ids[7]]
    assert caught.value.details == f"Known: {', '.join(newest)}, and 2 more."
    assert "`sandbox task list --all` shows tasks, also closed ones" in caught.value.hint


def test_a_line_of_a_task_says_what_its_record_says(home: Home) -> None:
    saved = save_task(home, task(prompt="\u00e9\n\x1b[31m", closed_at=NOW, status=TaskStatus.CLOSED))
    (line,) = list_task_rows(home)
    assert asdict(line) == saved.model_dump(include=set(asdict(line)))


@pytest.mark.parametrize(
    "damage",
    [
        {"schema_version": 99},
        {"id": "../../etc"},
        {"id": 5},
        {"status": "well"},
        {"status": []},
        {"prompt": None},
        {"repo_id": {}},
        {"created_at": "yesterday"},
        {"created_at": "2026-01-02T00:00:00"},
        {"created_at": 5},
    ],
    ids=repr,
)
def test_p04_a_record_without_a_line_is_skipped(damage: dict[str, Any], home: Home) -> None:
    for task_id in (TASK_ID, TASK_ID[:-1] + "1"):
        save_task(home, task(task_id))
    assert len(list_task_rows(home)) == 2, "the control"
    path = home.task(TASK_ID)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    assert [t.id for t in list_task_rows(home)] == [TASK_ID[:-1] + "1"]


def test_a_task_survives_its_record(home: Home) -> None:
    saved = task(prompt="\u00e9\n\x1b[31m", pr_url="https://x", closed_at=NOW)
    save_task(home, saved)
    assert find_task(home, TASK_ID) == saved


@pytest.mark.parametrize("task_id", ["../../etc/passwd", "task-x", "", "/etc/passwd", TASK_ID.upper(), TASK_ID + "/.."])
def test_a_task_id_is_never_a_path(task_id: str, home: Home) -> None:
    save_task(home, task())
    with refused(ErrorCode.NOT_FOUND):
        find_task(home, task_id)


def test_a_closed_task_is_a_conflict_unless_asked_for(home: Home) -> None:
    save_task(home, task(status=TaskStatus.CLOSED))
    with refused(ErrorCode.CONFLICT):
        find_task(home, TASK_ID)
    assert find_task(home, TASK_ID, allow_closed=True).status is TaskStatus.CLOSED


def test_a_folder_with_other_things_in_it_is_not_taken_over(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    (theirs / "letter.txt").write_text("dear")

    with refused(ErrorCode.INVALID_INPUT) as caught:
        Home(theirs).prepare()

    assert "letter.txt" in caught.value.details
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o755
    assert [entry.name for entry in theirs.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("before", [[], ["config.toml", "credentials.toml", "known_hosts"]], ids=["empty", "prepared"])
def test_a_folder_without_is_made_private(tmp_path: Path, before: list[str]) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    for name in before:
        (folder / name).touch()

    Home(folder).prepare()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_put_into_a_home_later_does_not_close_it(home: Home) -> None:
    (home.root / "notes.txt").touch()

    home.prepare()
