"""THREATS A: who is the repository? The worktree's `.git` is the guest's; the product never asks it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.attack.harness.scene import FILES, remove
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from tests.attack.arena import Arena, refused

pytestmark = pytest.mark.must
FSMONITOR = "[core]\n\tfsmonitor = {script}\n"


def poisoned(arena: Arena, name: str) -> str:
    return FSMONITOR.format(script=arena.script(name))


def plain_status(arena: Arena) -> None:
    arena.git("status", cwd=arena.worktree)


def test_a01_git_directory_in_place_of_the_file(arena: Arena) -> None:
    arena.replace_pointer(poisoned(arena, "a01"))
    arena.require_mark("a01", lambda: plain_status(arena))
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


@pytest.mark.parametrize("pointer", ["gitdir: ./evilgit\n", "gitdir: {wt}/evilgit\n", "gitdir: ../{wt.name}/evilgit\n"])
def test_a02_git_file_redirected(arena: Arena, pointer: str) -> None:
    arena.evil_git_dir(arena.worktree / "evilgit", poisoned(arena, "a02"))
    remove(arena.worktree / ".git")
    (arena.worktree / ".git").write_text(pointer.format(wt=arena.worktree))
    arena.require_mark("a02", lambda: plain_status(arena))
    arena.run_every_operation()
    assert arena.marks() == set()


def test_a03_git_is_a_symlink(arena: Arena) -> None:
    arena.evil_git_dir(arena.worktree / "x", poisoned(arena, "a03"))
    remove(arena.worktree / ".git")
    (arena.worktree / ".git").symlink_to("x")
    arena.require_mark("a03", lambda: plain_status(arena))
    arena.run_every_operation()
    assert arena.marks() == set()


def test_a04_commit_lands_on_the_own_branch_only(arena: Arena) -> None:
    """Control: with plain git the pointer decides, and the commit lands on the victim's branch."""
    other, mine = arena.task, arena.new_task()
    clone = arena.root / "shared.git"
    arena.require_git("clone", "-q", "--bare", str(arena.remote), str(clone), cwd=arena.root)
    for name in ("t1", "t2"):
        arena.require_git(
            "worktree", "add", "-q", "-b", name, str(arena.root / name), "main", cwd=arena.root, git_dir=clone
        )
    (arena.root / "t1" / ".git").write_text(f"gitdir: {clone}/worktrees/t2\n")
    before = arena.require_git("rev-parse", "t2", cwd=arena.root, git_dir=clone)
    arena.require_git("commit", "-q", "--allow-empty", "-m", "x", cwd=arena.root / "t1")
    assert arena.require_git("rev-parse", "t2", cwd=arena.root, git_dir=clone) != before, "void"

    remove(arena.worktree / ".git")
    (arena.worktree / ".git").write_text(f"gitdir: {arena.home}/repositories/worktrees/{arena.repo_id}/{other.id}\n")
    (arena.worktree / "f.txt").write_text("mine\n")
    commit = arena.workbench.commit(mine.id, "mine").commit
    refs = arena.require_git("for-each-ref", "--format=%(objectname) %(refname)", cwd=arena.root, git_dir=arena.cache)
    assert [line.split()[1] for line in refs.splitlines() if commit in line] == [f"refs/heads/{mine.branch}"]
    assert arena.workbench.task(other.id).head_commit == other.head_commit


def test_a05_discovery_does_not_climb(arena: Arena) -> None:
    """The home lies inside another repository; with `.git` gone plain git acts on that one."""
    arena.require_git("init", "-q", str(arena.root), cwd=arena.root)
    remove(arena.worktree / ".git")
    climbs = {"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}  # else an overlay's mount stops it, and a plain worktree does not
    found = arena.git("rev-parse", "--show-toplevel", cwd=arena.worktree, env=climbs).stdout
    assert found.decode().strip() == str(arena.root), "void"
    head = (arena.root / ".git" / "HEAD").stat().st_mtime_ns
    (arena.worktree / "f.txt").write_text("changed\n")
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == ["f.txt"]
    arena.workbench.commit(arena.task.id, "x")
    assert not list((arena.root / ".git" / "refs" / "heads").iterdir())
    assert (arena.root / ".git" / "HEAD").stat().st_mtime_ns == head


def test_a06_commondir_beside_innocent_files(arena: Arena) -> None:
    evil = arena.evil_git_dir(arena.worktree / "evilgit", poisoned(arena, "a06"))
    git = arena.replace_pointer()
    (git / "commondir").write_text(f"../{evil.name}\n")
    arena.require_mark("a06", lambda: plain_status(arena))
    arena.run_every_operation()
    assert arena.marks() == set()


def test_a07_mask_is_never_mounted_over_a_planted_link(guests: Callable[..., Arena]) -> None:
    """Control: the engine follows the link, so a guest of a careless controller gets its `.git` back."""
    arena = guests("sh", "-c", "rm -rf .git; mkdir .git && echo bypassed")
    arena.new_task()
    remove(arena.worktree / ".git")
    (arena.worktree / "decoy").write_text("")
    (arena.worktree / ".git").symlink_to("decoy")
    engine = arena.workbench._services.engine
    assert isinstance(engine, DockerEngine)
    binds = [
        {"Type": "bind", "Source": str(arena.worktree), "Target": "/workspace"},
        {
            "Type": "bind",
            "Source": str(arena.workbench._services.home.git_mask),
            "Target": "/workspace/.git",
            "ReadOnly": True,
        },
    ]
    body = {
        "Image": "space-sandbox/base",
        "User": ":".join(map(str, arena.worktree.stat()[4:6])),
        "Entrypoint": ["sh", "-c", "rm /workspace/.git && mkdir /workspace/.git"],
        "HostConfig": {"Mounts": binds, "NetworkMode": "none"},
    }
    made = engine.api.create_container_from_config(body)
    try:
        engine.api.start(made["Id"])
        assert engine.api.wait(made["Id"])["StatusCode"] == 0, "void: the careless mask held"
    finally:
        engine.api.remove_container(made["Id"], force=True)
    remove(arena.worktree / ".git")
    (arena.worktree / ".git").symlink_to("decoy")
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        arena.workbench.run_checks(arena.task.id, ["go"])
    assert (arena.worktree / ".git").is_symlink()


def test_a08_a09_mask_holds_from_inside(guests: Callable[..., Arena]) -> None:
    """The same commands succeed one directory deeper, where no mask is."""
    tries = "for c in 'rm -rf .git' 'mv .git x' 'ln -sfn / .git' 'sh -c \"echo x >.git\"'; do $c && echo GOT $c; done"
    script = f"{{ {tries}; }} 2>/dev/null; mkdir -p s; cd s; touch .git; rm .git && echo CONTROL; cat ../.git; exit 0"
    arena = guests("sh", "-c", script)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert "CONTROL" in run.stdout_tail
    assert "GOT" not in run.stdout_tail
    assert "managed-by-space-sandbox" in run.stdout_tail
    assert (arena.worktree / ".git").stat().st_uid == 0


def test_a10_repository_where_none_was(arena: Arena) -> None:
    remove(arena.worktree / ".git")
    (arena.worktree / "f.txt").write_text("changed\n")
    arena.replace_pointer(poisoned(arena, "a10"))
    arena.require_mark("a10", lambda: plain_status(arena))
    tree = arena.workbench.commit(arena.task.id, "x").tree
    listing = arena.require_git("ls-tree", "-r", "--name-only", tree, cwd=arena.root, git_dir=arena.cache)
    assert listing.split() == ["README.md", "d/x", "f.txt", "g.txt"]
    assert arena.marks() == set()


BARE = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {top}\n\tfsmonitor = {script}\n"


@pytest.mark.parametrize("place", ["worktree", "remote"])
def test_a11_bare_layout_in_the_tree(arena: Arena, place: str) -> None:
    """`HEAD`, `config`, `objects`, `refs` under a harmless name are ordinary files, so a commit may hold them.

    Control: `git status` typed in that directory takes it for a repository; `safe.bareRepository=explicit`, which the
    product always sets, makes git refuse it.
    """
    layout = {
        "b/HEAD": "ref: refs/heads/main\n",
        "b/config": BARE.format(top=arena.worktree, script=arena.script("a11")),
        "b/objects/x": "",
        "b/refs/x": "",
    }
    if place == "remote":
        arena.seed(arena.remote, {**FILES, **{name: text.encode() for name, text in layout.items()}})
        arena.new_task()
    else:
        for name, text in layout.items():
            (arena.worktree / name).parent.mkdir(parents=True, exist_ok=True)
            (arena.worktree / name).write_text(text)
    arena.require_mark("a11", lambda: arena.git("status", cwd=arena.worktree / "b"))
    belted = arena.git("-c", "safe.bareRepository=explicit", "status", cwd=arena.worktree / "b")
    assert b"bare repository" in belted.stderr
    assert arena.workbench.status(arena.task.id).rejected == ()
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


def test_a11_patch_that_makes_a_bare_layout(arena: Arena) -> None:
    """As above, brought by a patch, and applied by the product. Control: once written, plain git obeys it."""
    config = BARE.format(top=arena.worktree, script=arena.script("a11"))
    new = {"b/HEAD": "ref: refs/heads/main\n", "b/config": config, "b/objects/x": "x\n", "b/refs/x": "x\n"}
    patch = "".join(
        f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{text.count(chr(10))} @@\n"
        + "".join(f"+{line}\n" for line in text.splitlines())
        for name, text in new.items()
    )
    arena.workbench.apply_patch(arena.task.id, patch.encode(), dict.fromkeys(new))
    assert arena.marks() == set()
    arena.require_mark("a11", lambda: arena.git("status", cwd=arena.worktree / "b"))
    assert arena.run_every_operation() == []
    assert arena.marks() == set()


def test_a12_doctor_warns_of_trust_in_every_directory(arena: Arena) -> None:
    """Control: with it plain git obeys a foreign owner's `.git`, which it refuses without."""
    git = arena.replace_pointer(poisoned(arena, "a12"))
    shutil.chown(git, 64000, 64000)
    arena.git("-c", "safe.directory=", "status", cwd=arena.worktree)
    assert arena.marks() == set(), "void: refused without the trust"
    assert level_of(arena, "safe.directory") == "ok"
    (arena.operator / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    env = {"GIT_CONFIG_GLOBAL": str(arena.operator / ".gitconfig")}
    arena.require_mark("a12", lambda: arena.git("-c", "core.pager=cat", "status", cwd=arena.worktree, env=env))
    assert level_of(arena, "safe.directory") == "warn"


def level_of(arena: Arena, line: str) -> str:
    return next(str(probe.level) for probe in arena.workbench.doctor() if probe.name == line)


def test_a12_a18_foreign_owner_needs_no_safe_directory(arena: Arena) -> None:
    """Control: git itself refuses the guest's files. The product works on them and writes no `safe.directory`."""
    arena.replace_pointer()
    shutil.chown(arena.worktree / ".git", 64000, 64000)
    done = arena.git("-c", "safe.directory=", "status", cwd=arena.worktree)
    assert b"dubious ownership" in done.stderr, "void"
    arena.run_every_operation()
    for path in arena.home.rglob("config*"):
        assert path.is_dir() or b"safe" not in path.read_bytes()
    assert not (arena.operator / ".gitconfig").exists()


@pytest.mark.parametrize("kind", ["fifo", "huge", "directory", "device"])
def test_a13_git_of_another_kind_is_refused_at_once(guests: Callable[..., Arena], kind: str) -> None:
    arena = guests("true")
    arena.new_task()
    git = arena.worktree / ".git"
    remove(git)
    if kind == "fifo":
        os.mkfifo(git)
        with pytest.raises(BlockingIOError):  # control: a plain reader finds a FIFO, and without O_NONBLOCK it hangs
            os.open(git, os.O_RDONLY | os.O_NONBLOCK) and os.read(_writer_and_reader(git), 1)
    elif kind == "huge":
        with git.open("wb") as stream:
            stream.truncate(100 * 1024**2)
    elif kind == "directory":
        git.mkdir()
    else:
        os.mknod(git, 0o600 | 0o020000, os.makedev(1, 5))
    started = time.monotonic()
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        arena.workbench.run_checks(arena.task.id, ["go"])
    assert time.monotonic() - started < 2 * slowness()
    assert arena.workbench.status(arena.task.id).changes == ()


def _writer_and_reader(path: Path) -> int:
    os.open(path, os.O_RDWR | os.O_NONBLOCK)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def test_a16_tampered_pointer_does_not_block_cleanup(arena: Arena) -> None:
    clone, wt = arena.root / "c.git", arena.root / "w"
    arena.require_git("clone", "-q", "--bare", str(arena.remote), str(clone), cwd=arena.root)
    arena.require_git("worktree", "add", "-q", str(wt), "main", cwd=arena.root, git_dir=clone)
    for tree in (wt, arena.worktree):
        remove(tree / ".git")
        (tree / ".git").mkdir()
    assert arena.git("worktree", "remove", "--force", str(wt), cwd=clone, git_dir=clone).code != 0, "void"
    arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert not arena.worktree.exists()


def test_a17_core_worktree_points_to_the_host(arena: Arena) -> None:
    config = f"[core]\n\tbare = false\n\tworktree = {arena.outside}\n"
    arena.replace_pointer(config)
    arena.require_git("add", "-A", cwd=arena.worktree)
    assert arena.require_git("show", ":secret", cwd=arena.worktree) == SECRET_TEXT, "void"
    before = arena.read_canaries()
    (arena.worktree / "f.txt").write_text("changed\n")
    assert [c.path for c in arena.workbench.status(arena.task.id).changes] == ["f.txt"]
    arena.run_every_operation()
    assert arena.read_canaries() == before
    assert not arena.in_odb(SECRET_TEXT.encode() + b"\n")


SECRET_TEXT = "TOP-SECRET-OF-THE-HOST"
