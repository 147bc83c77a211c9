"""THREATS C, D, F, I, P10 on kept states: snapshot, restore and fork of a worktree that a guest has prepared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.attack.harness.scene import FILES, remove
from sandbox.errors import ErrorCode
from tests.attack.arena import Arena, refused
from tests.attack.test_c_nested import ALIASES

pytestmark = pytest.mark.must


def nest(arena: Arena, folder: Path) -> str:
    """A repository inside the worktree whose configuration runs a program; the name of its mark."""
    sink = arena.script("fsmonitor")
    arena.require_git("init", "-q", "-b", "main", str(folder), cwd=arena.root)
    (folder / "a").write_text("a\n")
    arena.require_git("add", "a", cwd=folder)
    arena.require_git("commit", "-q", "-m", "x", cwd=folder)
    with (folder / ".git" / "config").open("a") as stream:
        stream.write(f"[core]\n\tfsmonitor = {sink}\n")
    return "fsmonitor"


def test_c01_b01_states_of_a_worktree_with_a_nested_repository_run_nothing(arena: Arena) -> None:
    """Control: plain git's own way to keep a state looks into it."""
    mark = nest(arena, arena.worktree / "sub")
    arena.require_mark(mark, lambda: arena.git("status", cwd=arena.worktree / "sub"))
    (arena.worktree / "f.txt").write_text("work\n")
    taken = arena.workbench.snapshot(arena.task.id)
    (arena.worktree / "f.txt").write_text("more\n")
    arena.workbench.restore(arena.task.id, taken.id)
    forked = arena.workbench.fork_task(arena.task.id)
    arena.workbench.diff(arena.task.id)
    assert arena.marks() == set()
    assert taken.rejected == ("sub/.git", "sub/a")
    assert (arena.worktree / "f.txt").read_text() == "work\n"
    assert (arena.worktree / "sub" / ".git" / "config").exists()  # not ours to remove
    assert forked.worktree_path is not None
    assert not (forked.worktree_path / "sub").exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_c06_no_alias_of_git_is_ever_in_a_snapshot(arena: Arena, kind: str) -> None:
    """Control: the same names are on disk, with content that would be found in the clone."""
    names = sorted(f"n/{alias}" for alias in ALIASES)
    for name in names:
        path = arena.worktree / name
        path.parent.mkdir(exist_ok=True)
        if kind == "file":
            path.write_text("evil")
        elif kind == "directory":
            path.mkdir()
            (path / "config").write_text("evil")
        elif kind == "link":
            path.symlink_to("../f.txt")
        else:
            os.mkfifo(path)
    (arena.worktree / "f.txt").write_text("good")
    taken = arena.workbench.snapshot(arena.task.id)
    assert set(taken.rejected) == set(names)
    listing = arena.require_git("ls-tree", "-r", "--name-only", taken.tree, cwd=arena.root, git_dir=arena.cache)
    assert listing.split("\n") == sorted(FILES)
    assert arena.in_odb(b"good"), "void"
    assert not arena.in_odb(b"evil")


@pytest.mark.parametrize("at", ["f.txt", "d"])
def test_h02_h04_restore_and_fork_write_nothing_through_planted_links(arena: Arena, at: str) -> None:
    """Control: opening the name for writing hits the host's file."""
    taken = arena.workbench.snapshot(arena.task.id)
    remove(arena.worktree / at)
    victim = arena.outside / ("f" if at == "f.txt" else "x")
    victim.write_bytes(b"of the host")
    (arena.worktree / at).symlink_to(victim if at == "f.txt" else arena.outside)
    (arena.worktree / ("f.txt" if at == "f.txt" else "d/x")).write_bytes(b"followed")
    assert victim.read_bytes() == b"followed", "void"
    victim.write_bytes(b"of the host")
    canary = arena.read_canaries()
    arena.workbench.restore(arena.task.id, taken.id)
    arena.workbench.restore(arena.task.id, "base")
    arena.workbench.fork_task(arena.task.id, taken.id)
    assert arena.read_canaries() == canary
    assert (arena.worktree / "f.txt").read_bytes() == FILES["f.txt"]
    assert not (arena.worktree / at).is_symlink()


def test_f17_snapshots_are_never_pushed(arena: Arena) -> None:
    """Control: a push of everything would take them along."""
    (arena.worktree / "f.txt").write_text("secret draft\n")
    taken = arena.workbench.snapshot(arena.task.id)
    (arena.worktree / "f.txt").write_text("final\n")
    arena.workbench.commit(arena.task.id, "work")
    arena.workbench.push(arena.task.id)
    fork = arena.workbench.fork_task(arena.task.id, taken.id)
    (fork.worktree_path or arena.worktree).joinpath("g.txt").write_text("x\n")
    arena.workbench.commit(fork.id, "work")
    arena.workbench.push(fork.id)
    refs = arena.require_git("ls-remote", str(arena.remote), cwd=arena.root)
    assert sorted(line.split()[1] for line in refs.splitlines()) == sorted(
        ["HEAD", "refs/heads/main", f"refs/heads/{arena.task.branch}", f"refs/heads/{fork.branch}"]
    )
    missing = arena.git("cat-file", "-e", taken.commit, cwd=arena.root, git_dir=arena.remote)
    assert missing.code != 0
    mirror = arena.root / "mirror.git"
    arena.require_git("init", "-q", "--bare", str(mirror), cwd=arena.root)
    arena.require_git("push", "-q", "--mirror", str(mirror), cwd=arena.root, git_dir=arena.cache)
    assert taken.id in arena.require_git("ls-remote", str(mirror), cwd=arena.root), "void"


def test_n_another_tasks_state_cannot_be_read(arena: Arena) -> None:
    """Control: plain git in the clone, which they share, reads it by any of these names."""
    other = arena.task
    (arena.worktree / "f.txt").write_text("of the other\n")
    taken = arena.workbench.snapshot(other.id)
    arena.new_task()
    ref = f"refs/sandbox/{other.id}/snapshots/{taken.id}"
    for name in (taken.commit, taken.tree, ref):
        assert arena.require_git("rev-parse", f"{name}^{{tree}}", cwd=arena.root, git_dir=arena.cache) == taken.tree, (
            "void"
        )
    for name in (taken.id, taken.commit, taken.tree, ref, f"../{other.id}/snapshots/{taken.id}", f"{taken.commit}^"):
        with refused(ErrorCode.NOT_FOUND):
            arena.workbench.restore(arena.task.id, name)
        with refused(ErrorCode.NOT_FOUND):
            arena.workbench.fork_task(arena.task.id, name)
    assert (arena.worktree / "f.txt").read_bytes() == FILES["f.txt"]
