"""THREATS H26: a guest changes a file and makes it look untouched, so that no status, diff or commit tells.

Each attack first beats what it is aimed at (size and mtime; every time there is; the product without its mark of
guests), then the product. Only plain worktrees go by stat.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from devtools.waiting import wait_until
from sandbox.attack.harness.scene import FILES
from sandbox.files.stamps import TrustedBefore, coarse_now_ns, keeps_times, stamp_of
from sandbox.store.guest_times import mark_guest_running
from sandbox.store.home import Home
from sandbox.workbench import Watch
from sandbox.workspaces.statcache import load
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]
PLAIN = {"workspaces": {"worktree": "plain"}}
OLD, NEW = FILES["f.txt"], b"two\none\nthree\n"
DEADLINE_S = 30
TRIES = 10


@pytest.fixture
def arena(make_arena: Callable[..., Arena]) -> Arena:
    """A victim with a plain worktree, all of it known by its stat."""
    arena = make_arena(settings=PLAIN)
    arena.new_task()
    if not keeps_times(arena.worktree):
        unavailable("times of this file system prove nothing: nothing is kept")
    warm_up(arena)
    return arena


def warm_up(arena: Arena) -> None:
    """Look until `f.txt` is known by the stat it has."""
    wait_until(lambda: changed(arena) is None and known(arena) == stamp_of((arena.worktree / "f.txt").lstat()))


def until_past(path: Path) -> None:
    """Until the kernel's clock has left the tick of this file's ctime behind."""
    stamp = stamp_of(path.lstat())
    wait_until(lambda: TrustedBefore.of(coarse_now_ns(), None).is_evidence(stamp))


def known(arena: Arena) -> bytes | None:
    index = load(Home(arena.home).stat_index(arena.task.id))
    return None if index is None else index.folders[b""].known.by_name()["f.txt"]


def changed(arena: Arena) -> str | None:
    """What status says of `f.txt`."""
    return next((str(c.kind) for c in arena.workbench.status(arena.task.id).changes if c.path == "f.txt"), None)


def size_and_mtime(path: Path) -> tuple[int, int]:
    """What a careless cache would go by."""
    info = path.lstat()
    return info.st_size, info.st_mtime_ns


# --- by system calls


def _set_back(path: Path, act: Callable[[], object]) -> None:
    info = path.lstat()
    act()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def _in_place(wt: Path) -> None:
    _set_back(wt / "f.txt", lambda: (wt / "f.txt").write_bytes(NEW))


def _renamed_over(wt: Path) -> None:
    """An older file with the size and mtime of the victim takes its place."""
    (wt / "other").write_bytes(NEW)
    info = (wt / "f.txt").lstat()
    os.utime(wt / "other", ns=(info.st_atime_ns, info.st_mtime_ns))
    until_past(wt / "other")
    (wt / "other").rename(wt / "f.txt")


def _linked_over(wt: Path) -> None:
    (wt / "other").write_bytes(NEW)
    info = (wt / "f.txt").lstat()
    os.chown(wt / "other", info.st_uid, info.st_gid)
    os.utime(wt / "other", ns=(info.st_atime_ns, info.st_mtime_ns))
    (wt / "f.txt").unlink()
    os.link(wt / "other", wt / "f.txt")


def _through_a_second_name(wt: Path) -> None:
    os.link(wt / "f.txt", wt / "second")
    _set_back(wt / "f.txt", lambda: (wt / "second").write_bytes(NEW))
    (wt / "second").unlink()


def _inode_again(wt: Path) -> None:
    """Deleted and made anew: the file system likes to give the inode's number out again."""

    def act() -> None:
        (wt / "f.txt").unlink()
        (wt / "f.txt").write_bytes(NEW)

    _set_back(wt / "f.txt", act)


def _truncated_and_filled(wt: Path) -> None:
    def act() -> None:
        with (wt / "f.txt").open("r+b") as stream:
            stream.truncate(0)
            stream.write(NEW)

    _set_back(wt / "f.txt", act)


ATTACKS = {
    f.__name__.strip("_"): f
    for f in (_in_place, _renamed_over, _linked_over, _through_a_second_name, _inode_again, _truncated_and_filled)
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_h26_size_and_mtime_put_back(attack: Callable[[Path], None], arena: Arena) -> None:
    before = size_and_mtime(arena.worktree / "f.txt")
    attack(arena.worktree)
    assert (arena.worktree / "f.txt").read_bytes() == NEW
    assert size_and_mtime(arena.worktree / "f.txt") == before, "void: size and mtime would have told"
    assert changed(arena) == "modified"
    arena.workbench.commit(arena.task.id, "what is there")
    assert arena.git("show", f"{arena.task.branch}:f.txt", cwd=arena.cache, git_dir=arena.cache).stdout == NEW


def test_h26_directories_trade_places(make_arena: Callable[..., Arena]) -> None:
    """No file in them is touched: not one of their times moves."""
    arena = make_arena(settings=PLAIN, files={"f.txt": OLD, "a/x": b"one", "b/x": b"two"})
    arena.new_task()
    warm_up(arena)
    before = [(arena.worktree / name / "x").lstat().st_ctime_ns for name in ("a", "b")]
    (arena.worktree / "a").rename(arena.worktree / "c")
    (arena.worktree / "b").rename(arena.worktree / "a")
    (arena.worktree / "c").rename(arena.worktree / "b")
    assert [(arena.worktree / name / "x").lstat().st_ctime_ns for name in ("b", "a")] == before, "void: a time moved"
    assert {c.path for c in arena.workbench.status(arena.task.id).changes} == {"a/x", "b/x"}


# --- through a mapping

MAPPING = f"""
import mmap, os, sys
name, step = sys.argv[1], sys.stdin.readline
file = open(name, "r+b")
view = mmap.mmap(file.fileno(), 0)
kept = view[:]
{{first}}
print("mapped", flush=True)
step()
view[:] = {NEW!r}
print("stored", flush=True)
step()
"""
STORES_FIRST = "view[:] = kept"


@contextmanager
def mapping(path: Path, first: str = STORES_FIRST) -> Iterator[Callable[[], None]]:
    """A process that maps a file, does `first` with the mapping and stores other bytes when the result is called."""
    program = [sys.executable, "-c", MAPPING.format(first=first), str(path)]
    guest = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert guest.stdin
    assert guest.stdout

    def store() -> None:
        assert guest.stdin
        assert guest.stdout
        guest.stdin.write(b"\n")
        assert guest.stdout.readline() == b"stored\n"

    try:
        assert guest.stdout.readline() == b"mapped\n"
        yield store
        guest.communicate(b"\n", timeout=DEADLINE_S)
    finally:
        guest.kill()
        guest.communicate()


@pytest.mark.parametrize("marked", [False, True], ids=["control", "product"])
def test_h26_a_mapping_that_was_stored_to_before_we_looked(arena: Arena, marked: bool) -> None:
    """Control: not marked as a guest, it changes the file and no time of it. Write-back in between, by whoever syncs
    this machine, spoils an attempt.
    """
    for _ in range(TRIES):
        moved, seen = _store_again(arena, marked=marked)
        assert not marked or seen == ["modified", "modified"]
        if not moved:
            break
        (arena.worktree / "f.txt").write_bytes(OLD)
    assert not moved, f"void: a time moved in each of {TRIES} attempts"
    assert marked or seen == [None, None]


def _store_again(arena: Arena, *, marked: bool) -> tuple[bool, list[str | None]]:
    """Whether the stat of the file moved, and what status said while the guest lived and after its end."""
    path = arena.worktree / "f.txt"
    with ExitStack() as stack:
        if marked:
            stack.enter_context(mark_guest_running(Home(arena.home).guest_mark(arena.task.id), coarse_now_ns))
        store = stack.enter_context(mapping(path))
        until_past(path)
        assert changed(arena) is None
        before = stamp_of(path.lstat())
        store()
        assert path.read_bytes() == NEW
        moved, seen = stamp_of(path.lstat()) != before, [changed(arena)]
    return moved, [*seen, changed(arena)]


def test_h26_a_mapping_younger_than_our_look_moves_ctime(arena: Arena) -> None:
    before = known(arena)
    with mapping(arena.worktree / "f.txt", first="") as store:
        store()
        assert stamp_of((arena.worktree / "f.txt").lstat()) != before
        assert changed(arena) == "modified"


def test_h26_a_file_system_without_such_times_is_not_believed(make_arena: Callable[..., Arena]) -> None:
    """Control: on tmpfs a mapping that was read first is stored to, and no time moves."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or keeps_times(memory):
        unavailable("no tmpfs at /dev/shm")
    path = memory / f"sandbox-test-{os.getpid()}"
    try:
        path.write_bytes(OLD)
        before = stamp_of(path.lstat())
        with mapping(path, first="") as store:
            until_past(path)
            store()
            assert path.read_bytes() == NEW
            assert stamp_of(path.lstat()) == before, "void: a time moved"
    finally:
        path.unlink(missing_ok=True)
    assert not keeps_times(memory)


GUEST = f"""
import mmap, os, time
file = open("f.txt", "r+b")
view = mmap.mmap(file.fileno(), 0)
view[:] = view[:]
print("mapped", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
view[:] = {NEW!r}
print("stored", flush=True)
while not os.path.exists("end"):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("marked", [False, True], ids=["control", "product"])
def test_h26_a_real_guest_that_keeps_a_mapping(
    guests: Callable[..., Arena], marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = guests("python3", "-c", GUEST, image="python", settings=PLAIN)
    arena.new_task()
    if not keeps_times(arena.worktree):
        unavailable("times of this file system prove nothing: nothing is kept")
    warm_up(arena)
    if not marked:
        monkeypatch.setattr(
            import_module("sandbox.workbench.checks.task_checks"), "mark_guest_running", lambda *_: ExitStack()
        )
    for _ in range(TRIES):
        seen = _run_guest(arena)
        assert not marked or seen == [None, "modified", "modified"]
        if seen == [None, None, None] or marked:
            break
        (arena.worktree / "f.txt").write_bytes(OLD)  # spoiled by write-back
    assert marked or seen == [None, None, None], f"void: seen in each of {TRIES} attempts"
    assert not Home(arena.home).guest_mark(arena.task.id).exists()


def _run_guest(arena: Arena) -> list[str | None]:
    """What status said once the guest had its mapping, once it had stored through it, and after its end."""
    said = {word: threading.Event() for word in (b"mapped", b"stored")}

    def follow(_: str, chunk: bytes) -> None:
        for word, event in said.items():
            if word in chunk:
                event.set()

    guest = threading.Thread(target=arena.workbench.run_checks, args=(arena.task.id, ["go"], Watch(follow=follow)))
    guest.start()
    seen: list[str | None] = []
    try:
        assert said[b"mapped"].wait(DEADLINE_S)
        until_past(arena.worktree / "f.txt")
        seen.append(changed(arena))
        (arena.worktree / "go").touch()
        assert said[b"stored"].wait(DEADLINE_S)
        assert (arena.worktree / "f.txt").read_bytes() == NEW
        seen.append(changed(arena))
    finally:
        for name in ("go", "end"):
            (arena.worktree / name).touch()
        guest.join(DEADLINE_S)
        for name in ("go", "end"):
            (arena.worktree / name).unlink()
    return [*seen, changed(arena)]
