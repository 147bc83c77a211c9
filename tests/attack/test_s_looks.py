"""THREATS S07: a guest rewrites large files, and each look at the task stores them on the host."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from sandbox.git import new_commits
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.process import Git
from sandbox.models import SearchQuery
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]
SIZE = 256 * 1024  # does not compress
TURNS = 4


def stored_bytes(arena: Arena) -> int:
    """Size of all files of the cache clone."""
    return sum(path.stat().st_size for path in arena.cache.rglob("*") if path.is_file())


def rewrite(arena: Arena) -> bytes:
    content = os.urandom(SIZE)
    (arena.worktree / "large").write_bytes(content)
    return content


def test_s07_looks_at_rewritten_files_leave_nothing_on_the_host(arena: Arena) -> None:
    """Control: the same contents, built into trees of the cache clone as at first, stay after `gc`."""
    bench, task = arena.workbench, arena.task.id
    before = stored_bytes(arena)
    contents = []
    for _ in range(TURNS):
        contents.append(rewrite(arena))
        bench.status(task)
        bench.diff(task, "head")
        bench.diff(task, "base")
        bench.search(task, SearchQuery(pattern="one"))
        assert stored_bytes(arena) == before
    bench.close_task(bench.fork_task(task).id, delete_worktree=True, discard=True)
    bench.close_task(task, delete_worktree=True, discard=True)
    bench.collect()
    assert stored_bytes(arena) - before < SIZE // 4  # the branches of both tasks
    for content in contents:
        new_commits.build_tree(
            Git(arena.cache), arena.task.head_commit, [TreeChange(b"large", REGULAR, content_of(content))]
        )
    bench.collect()
    assert stored_bytes(arena) - before > TURNS * SIZE, "void"


def test_s07_a_commit_stores_its_files_once(arena: Arena) -> None:
    bench, task = arena.workbench, arena.task.id
    before = stored_bytes(arena)
    for _ in range(TURNS):
        content = rewrite(arena)
        bench.diff(task, "head")
    bench.commit(task, "work")
    assert arena.in_odb(content)
    assert SIZE < stored_bytes(arena) - before < 2 * SIZE
    arena.require_git("fsck", "--connectivity-only", cwd=arena.root, git_dir=arena.cache)


def test_s07_a_guest_that_rewrites_a_file_before_each_check_stores_nothing(guests: Callable[..., Arena]) -> None:
    arena = guests("sh", "-c", f"head -c {SIZE} /dev/urandom > large")
    arena.new_task()
    before = stored_bytes(arena)
    for _ in range(TURNS):
        (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
        assert run.tree != ""
    assert (arena.worktree / "large").stat().st_size == SIZE, "void"
    assert stored_bytes(arena) == before
