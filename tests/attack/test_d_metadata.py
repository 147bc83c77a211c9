"""THREATS D: the guest's own git metadata does not decide what the product sees. (Ours is mounted nowhere.)"""

from __future__ import annotations

import pytest

from tests.attack.arena import Arena

pytestmark = pytest.mark.must


def test_d13_index_bits_hide_nothing(arena: Arena) -> None:
    arena.replace_pointer()
    arena.require_git("update-index", "--assume-unchanged", "f.txt", cwd=arena.worktree)
    arena.require_git("update-index", "--skip-worktree", "g.txt", cwd=arena.worktree)
    (arena.worktree / "f.txt").write_text("evil\n")
    (arena.worktree / "g.txt").write_text("evil\n")
    assert arena.require_git("status", "--porcelain", cwd=arena.worktree) == "", "void"
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == ["f.txt", "g.txt"]
    assert [f.path for f in arena.workbench.diff(arena.task.id).files] == ["f.txt", "g.txt"]


def test_d14_exclude_file_hides_nothing(arena: Arena) -> None:
    git = arena.replace_pointer()
    (git / "info").mkdir(exist_ok=True)
    (git / "info" / "exclude").write_text("*\n")
    (arena.worktree / "new.sh").write_text("evil\n")
    assert arena.require_git("status", "--porcelain", cwd=arena.worktree) == "", "void"
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == ["new.sh"]
    (arena.worktree / ".gitignore").write_text("*\n")  # the live tree's rules are the guest's to write
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == [".gitignore", "new.sh"]
