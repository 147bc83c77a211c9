"""THREATS C: repositories inside the repository, the case that an explicit GIT_DIR does not cover."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.attack.harness.plumbing import Plumbing
from sandbox.attack.suites.nested import make_nested, run_hardened_git
from tests.attack.arena import Arena, refused

pytestmark = pytest.mark.must
IGNORE_NONE = '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n'


@pytest.fixture
def gitlinked(arena: Arena) -> Arena:
    """The remote records a gitlink `sub` to a commit that the guest has."""
    arena.sub_commit = make_nested(arena, arena.root / "prototype")  # type: ignore[attr-defined]
    work = arena.root / "work"
    arena.require_git("clone", "-q", str(arena.remote), str(work), cwd=arena.root)
    cacheinfo = f"160000,{arena.sub_commit},sub"  # type: ignore[attr-defined]
    arena.require_git("update-index", "--add", "--cacheinfo", cacheinfo, cwd=work)
    arena.require_git("commit", "-qm", "link", cwd=work)
    arena.require_git("push", "-q", "origin", "HEAD:main", cwd=work)
    shutil.rmtree(work)
    arena.new_task()
    return arena


def arm(arena: Arena, folder: Path, name: str) -> None:
    """R1: the filter, the attributes, and a change of the same size."""
    payload = arena.script(name, then="cat")
    git = folder / ".git"
    config = git / "config" if git.is_dir() else (folder / git.read_text().split()[1] / "config")
    with config.open("a") as stream:
        stream.write(f'[core]\n\tfsmonitor = {payload}\n[filter "evil"]\n\tclean = {payload}\n')
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "a").write_text("b\n")
    os.utime(folder / "a", (1577836800, 1577836800))


@pytest.mark.parametrize("owner", [0, 10001], ids=["c01_same_owner", "c03_foreign_owner"])
def test_c01_c03_c10_nested_repository_at_a_gitlink(gitlinked: Arena, owner: int) -> None:
    arena, sub = gitlinked, gitlinked.worktree / "sub"
    shutil.copytree(arena.root / "prototype", sub)
    arm(arena, sub, "c01")
    for path in [sub, *sub.rglob("*")]:
        os.chown(path, owner, owner)
    arena.require_mark("c01", lambda: run_hardened_git(arena, "add", "-A"))
    assert arena.workbench.status(arena.task.id).rejected == ("sub/.git",)
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


def test_c02_gitmodules_overrides_the_hardening(gitlinked: Arena) -> None:
    arena, sub = gitlinked, gitlinked.worktree / "sub"
    shutil.copytree(arena.root / "prototype", sub)
    arm(arena, sub, "c02")
    (arena.worktree / ".gitmodules").write_text(IGNORE_NONE)
    arena.require_mark("c02", lambda: run_hardened_git(arena, "status"))
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


def test_c01_files_at_a_gitlink_do_not_block_the_task(gitlinked: Arena) -> None:
    """A variant: no nested `.git` at all, only files where a commit records a submodule.

    Control: they are there, and an ordinary change beside them must still be seen, compared and committed.
    """
    arena = gitlinked
    (arena.worktree / "sub" / "deep").mkdir(parents=True)
    (arena.worktree / "sub" / "deep" / "x").write_text("x\n")
    (arena.worktree / "f.txt").write_text("changed\n")
    status = arena.workbench.status(arena.task.id)
    assert [c.path for c in status.changes] == ["f.txt"]
    assert "sub/deep/x" in status.rejected
    assert arena.run_every_operation() == []
    head = arena.workbench.task(arena.task.id).head_commit
    assert "160000 commit" in arena.require_git("ls-tree", head, "sub", cwd=arena.root, git_dir=arena.cache)


def test_c04_embedded_repository_in_two_steps(arena: Arena) -> None:
    make_nested(arena, arena.worktree / "emb")
    run_hardened_git(arena, "add", "-A")
    arm(arena, arena.worktree / "emb", "c04")
    arena.require_mark("c04", lambda: run_hardened_git(arena, "-c", "diff.ignoreSubmodules=none", "status"))
    assert arena.workbench.status(arena.task.id).rejected == ("emb/.git", "emb/.gitattributes", "emb/a")
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


def test_c05_nested_gitfile(gitlinked: Arena) -> None:
    arena, sub = gitlinked, gitlinked.worktree / "sub"
    shutil.copytree(arena.root / "prototype", sub)
    shutil.move(sub / ".git", arena.worktree / "elsewhere")
    (sub / ".git").write_text("gitdir: ../elsewhere\n")
    arm(arena, sub, "c05")
    arena.require_mark("c05", lambda: run_hardened_git(arena, "add", "-A"))
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


ALIASES = [".git", ".GIT", ".g\u200cit", "git~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION", ".Git . ."]


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_c06_no_alias_of_git_is_ever_committed(arena: Arena, kind: str) -> None:
    """Control: plain git on Linux adds the HFS spelling without a word."""
    naive = arena.root / "naive"
    arena.require_git("init", "-q", str(naive), cwd=arena.root)
    (naive / ALIASES[2]).write_text("x")
    arena.require_git("add", "-A", cwd=naive)
    assert arena.require_git("ls-files", "-z", cwd=naive).strip("\0") == ALIASES[2], "void"

    folders = ("", "d/", "new/deep/")
    names = [f"{folder}{a}" for folder in folders for a in ALIASES if f"{folder}{a}" != ".git"]
    for name in names:
        path = arena.worktree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_text("evil")
        elif kind == "directory":
            path.mkdir()
            (path / "config").write_text("evil")
        elif kind == "link":
            path.symlink_to("f.txt")
        else:
            os.mkfifo(path)
    (arena.worktree / "f.txt").write_text("changed\n")
    assert set(arena.workbench.status(arena.task.id).rejected) == set(names)
    tree = arena.workbench.commit(arena.task.id, "x").tree
    listing = arena.require_git("ls-tree", "-r", "-z", "--name-only", tree, cwd=arena.root, git_dir=arena.cache)
    assert listing.strip("\0").split("\0") == ["README.md", "d/x", "f.txt", "g.txt"]
    assert not arena.in_odb(b"evil")


SUBMODULES = {
    "option": '[submodule "s"]\n\tpath = s\n\turl = -u./x\n',
    "ext": '[submodule "s"]\n\tpath = s\n\turl = ext::{p}\n',
    "update": '[submodule "s"]\n\tpath = s\n\turl = {remote}\n\tupdate = !{p}\n',
    "name": '[submodule "../../x"]\n\tpath = s\n\turl = {remote}\n',
    "carriage-return": '[submodule "s"]\n\tpath = "s\r"\n\turl = {remote}\n',
    "harmless": '[submodule "s"]\n\tpath = s\n\turl = {remote}\n',
}


@pytest.mark.parametrize("name", SUBMODULES)
def test_c07_e14_submodules_stay_empty(arena: Arena, name: str) -> None:
    """Control (where git itself would do it): `update = !command` set by the config runs on `submodule update`."""
    payload = arena.script("c07")
    plumbing = Plumbing(arena, arena.remote)
    text = SUBMODULES[name].replace("{p}", payload).replace("{remote}", str(arena.remote))
    link = arena.require_git("rev-parse", "main", cwd=arena.root, git_dir=arena.remote)
    tree = plumbing.tree(
        ("100644", b".gitmodules", plumbing.blob(text.encode())), ("100644", b"f.txt", plumbing.blob(b"f")),
        ("160000", b"s", link),
    )  # fmt: skip
    plumbing.publish(tree)
    if name == "harmless":
        work = arena.root / "work"
        arena.require_git(
            "-c", "protocol.file.allow=always", "clone", "-q", "--recurse-submodules", str(arena.remote), str(work),
            cwd=arena.root,
        )  # fmt: skip
        assert (work / "s" / "f.txt").exists(), "void: plain git fetches it"
        arena.require_git("config", "submodule.s.update", f"!{payload}", cwd=work)
        (work / "s" / "f.txt").unlink()
        other = arena.require_git("rev-parse", "HEAD", cwd=work)
        arena.require_git("update-index", "--cacheinfo", f"160000,{other},s", cwd=work)
        arena.require_mark("c07", lambda: arena.git("submodule", "update", "--force", cwd=work))
    if name in {"option", "update", "name"}:
        with refused():
            arena.workbench.clone(str(arena.remote))
    else:
        arena.new_task()
        assert not (arena.worktree / "s").exists()
        arena.run_every_operation()
    assert arena.marks() == set()


def test_c_snapshot_of_a_check_ignores_nested_repositories(guests: Callable[..., Arena]) -> None:
    """A real guest makes the nested repository itself; the next check's snapshot looks at it."""
    arena = guests(
        "sh", "-c", "git init -q n && cd n && echo a >a && git add a &&"
        "git -c user.name=a -c user.email=b commit -qm x;"
        "printf '[core]\\n\\tfsmonitor = /nonexistent\\n' >>.git/config",
    )  # fmt: skip
    arena.new_task()
    for _ in range(2):
        (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
        assert run.verdict == "passed", run.stderr_tail
    assert arena.workbench.status(arena.task.id).rejected == ("n/.git", "n/a")
