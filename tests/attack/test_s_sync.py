"""THREATS S71, S72: a hostile newer base that a task is merged with, and a checkout that a result is written into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.attack.harness.plumbing import Plumbing
from sandbox.attack.harness.scene import SECRET, plain_clone, remove
from sandbox.errors import ErrorCode
from sandbox.files.tree import WorktreeFiles
from sandbox.git.process import Git
from sandbox.models import SyncState
from sandbox.workspaces.person_directory import plan_writes
from tests.attack.arena import Arena, refused

pytestmark = pytest.mark.must


def publish(arena: Arena, change: Callable[[Path], None], name: str = "base") -> str:
    """A new commit on the remote's main branch; its id."""
    work = arena.root / f"publish-{name}"
    arena.require_git("clone", "-q", str(arena.remote), str(work), cwd=arena.root)
    change(work)
    arena.require_git("add", "-A", "-f", cwd=work)
    arena.require_git("commit", "-q", "-m", name, cwd=work)
    arena.require_git("push", "-q", "origin", "HEAD:refs/heads/main", cwd=work)
    return arena.require_git("rev-parse", "HEAD", cwd=work)


def test_s71_merge_drivers_and_filters_that_a_base_names_do_not_run(arena: Arena) -> None:
    """The operator has the drivers. Control: a plain merge runs both, and `union` hides a conflict."""
    driver, smudge = arena.script("driver"), arena.script("smudge", then="cat")
    (arena.operator / ".gitconfig").write_text(
        f'[merge "evil"]\n\tdriver = {driver}\n[filter "evil"]\n\tsmudge = {smudge}\n\tclean = {smudge}\n'
    )
    plain = plain_clone(arena)

    def change(work: Path) -> None:
        (work / ".gitattributes").write_text("f.txt merge=evil\n* filter=evil\ng.txt merge=union\n")
        (work / "f.txt").write_text("theirs\n")
        (work / "g.txt").write_text("theirs\n")

    publish(arena, change)
    for root in (plain, arena.worktree):
        (root / "f.txt").write_text("ours\n")
        (root / "g.txt").write_text("ours\n")
        (root / ".gitattributes").write_text("f.txt merge=evil\n* filter=evil\ng.txt merge=union\n")
    arena.require_git("add", "-A", cwd=plain)
    arena.require_git("commit", "-q", "-m", "ours", cwd=plain)
    env = {"GIT_CONFIG_GLOBAL": str(arena.operator / ".gitconfig")}
    arena.require_mark("driver", lambda: arena.git("pull", "-q", "--no-rebase", cwd=plain, env=env))
    assert (plain / "g.txt").read_text() == "ours\ntheirs\n", "void"
    found = arena.workbench.sync_task(arena.task.id, fetch=True)
    assert found.state is SyncState.CONFLICTS
    assert {conflict.path for conflict in found.conflicts} == {"f.txt", "g.txt"}
    assert arena.marks() == set()


@pytest.mark.one_git
def test_s71_a_directory_that_becomes_a_link_and_back_leads_no_write_outside(arena: Arena) -> None:
    """Control: opening the name for writing hits the host's file."""

    def to_link(work: Path) -> None:
        remove(work / "d")
        (work / "d").symlink_to(arena.outside)

    def to_directory(work: Path) -> None:
        remove(work / "d")
        (work / "d").mkdir()
        (work / "d" / "f").write_text("of the base\n")

    publish(arena, to_link, "link")
    arena.workbench.sync_task(arena.task.id, fetch=True)
    assert (arena.worktree / "d").is_symlink()
    (arena.worktree / "d" / "f").write_text("followed")
    assert (arena.outside / "f").read_text() == "followed", "void"
    (arena.outside / "f").write_bytes(SECRET)
    canary = arena.read_canaries()
    publish(arena, to_directory, "directory")
    arena.workbench.sync_task(arena.task.id, fetch=True)
    assert arena.read_canaries() == canary
    assert (arena.worktree / "d" / "f").read_text() == "of the base\n"


@pytest.mark.one_git
def test_s71_a_base_past_the_limits_of_a_checkout_is_refused_before_anything_changes(arena: Arena) -> None:
    """Control: the remote accepts it, and a fetch brings it."""
    plumbing = Plumbing(arena, arena.remote)
    deep = plumbing.nested_tree("/".join(["d"] * 70), "100644", plumbing.blob(b"deep"))
    tip = arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote)
    words = ("commit-tree", deep, "-p", tip, "-m", "deep")
    commit = arena.require_git(*words, cwd=arena.remote, git_dir=arena.remote)
    arena.require_git("update-ref", "refs/heads/deep", commit, cwd=arena.remote, git_dir=arena.remote)
    arena.workbench.update_repository(arena.task.repo_id)
    arena.require_git("cat-file", "-e", commit, cwd=arena.root, git_dir=arena.cache)
    for move in (arena.workbench.sync_task, arena.workbench.checkout_task):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            move(arena.task.id, "deep")
    assert arena.workbench.task(arena.task.id) == arena.task
    assert not arena.workbench.status(arena.task.id).dirty


@pytest.mark.one_git
def test_s72_a_checkout_that_commands_git_runs_nothing_when_a_result_is_written(arena: Arena) -> None:
    """Control: plain git in it runs the payloads."""
    target = plain_clone(arena)
    monitor, hook = arena.script("monitor"), arena.script("hook")
    with (target / ".git" / "config").open("a") as stream:
        stream.write(f'[core]\n\tfsmonitor = {monitor}\n[filter "evil"]\n\tclean = {hook}\n\tsmudge = {hook}\n')
    (target / ".gitattributes").write_text("* filter=evil\n")
    for name in ("post-checkout", "post-index-change", "pre-applypatch"):
        (target / ".git" / "hooks" / name).symlink_to(hook)
    arena.require_mark("monitor", lambda: arena.git("status", cwd=target))
    (arena.worktree / "f.txt").write_text("result\n")
    for dry_run in (True, False):
        arena.workbench.apply_task(arena.task.id, target, uncommitted=True, dry_run=dry_run)
    assert (target / "f.txt").read_text() == "result\n"
    assert arena.marks() == set()


@pytest.mark.one_git
def test_s72_links_of_a_checkout_lead_no_write_outside(arena: Arena) -> None:
    """Control: opening the names for writing hits the host's files."""
    target = plain_clone(arena)
    remove(target / "d")
    (target / "d").symlink_to(arena.outside)
    remove(target / "f.txt")
    (target / "f.txt").symlink_to(arena.outside / "f")
    for name in ("d/f", "f.txt"):
        (target / name).write_text("followed")
        assert (arena.outside / "f").read_text() == "followed", "void"
    (arena.outside / "f").write_bytes(SECRET)
    canary = arena.read_canaries()
    (arena.worktree / "d" / "f").write_text("new\n")
    (arena.worktree / "d" / "x").write_text("changed\n")
    (arena.worktree / "f.txt").write_text("changed\n")
    with refused(ErrorCode.CONFLICT) as caught:
        arena.workbench.apply_task(arena.task.id, target, uncommitted=True)
    assert caught[0].data == {"paths": ["d/f", "d/x", "f.txt"]}
    assert arena.read_canaries() == canary
    assert (target / "d").is_symlink()


LEAVING = (b"/etc/passwd", b"../outside/f", b"d/../../outside/f", b".git/config")
OF_GIT = (b".git", b".GIT", b"git~1", b"..", ".g\u200cit".encode())


@pytest.mark.one_git
def test_s72_no_link_that_leads_out_and_no_name_of_git_is_written_into_a_checkout(arena: Arena) -> None:
    """Control: a link inside it and a plain name are planned."""
    plumbing, git = Plumbing(arena, arena.cache), Git(arena.cache)
    blob, empty = plumbing.blob(b"evil"), plumbing.tree()

    def link(to: bytes) -> str:
        return plumbing.tree(("120000", b"l", plumbing.blob(to)))

    def named(name: bytes) -> str:
        below = plumbing.tree(("40000", name, plumbing.tree(("100644", b"config", blob))))
        return plumbing.tree(("40000", b"n", below))

    with WorktreeFiles(plain_clone(arena)) as files:
        for tree, path in ((link(b"f.txt"), "l"), (named(b"plain"), "n/plain/config")):
            assert [write.step.path for write in plan_writes(git, files, empty, tree)] == [path]
        for tree in (*map(link, LEAVING), *map(named, OF_GIT)):
            with refused(ErrorCode.UNSAFE_PATH):
                plan_writes(git, files, empty, tree)
