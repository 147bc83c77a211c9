"""Worktrees as overlays, attacked: forged marks, a shared checkout, names that hide, rooms that are not their tree.

What a guest does is done by one in a container (`forge.c`, a static binary), since root may do more here than it may.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from devtools.requirement import unavailable
from sandbox.attack.harness.plumbing import Plumbing
from sandbox.attack.harness.scene import FILES, SECRET
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files import checkout
from sandbox.files.overlay_mounts import OverlayLayers, is_mount_point, mount_overlay, unmount_overlay
from sandbox.files.tree import WorktreeFiles
from sandbox.git.blobs import read_blobs
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.models import ChangeKind, SearchQuery
from sandbox.policy.paths import RepoPath
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.repositories.repository_settings import AddedFiles
from sandbox.workbench.tasks import lifecycle
from sandbox.workbench.tasks.worktrees import clean_room
from tests.attack.arena import RACE_S, Arena, refused

pytestmark = [pytest.mark.must, pytest.mark.xdist_group("guests-programs")]
ROOM = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }\ntimeout_s = 40"
BOTH = pytest.mark.parametrize("layout", ["overlay", "plain"])
BUDGET_S = 4.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the guest's programs, which need nothing of an image."""
    compiler = shutil.which("gcc")
    if compiler is None:
        unavailable("No gcc: `apt-get install gcc libc6-dev`")
    folder = tmp_path_factory.mktemp("guest")
    for name in ("race", "forge"):
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run([compiler, "-static", "-O1", "-o", folder / name, source], check=True, timeout=60)
    return folder


def start(guests: Callable[..., Arena], programs: Path, script: str, **options: Any) -> Arena:
    """A task whose check runs a script beside the guest's programs."""
    arena = guests("sh", "-c", script, extra=ROOM, **options)
    arena.new_task()
    for program in programs.iterdir():
        shutil.copy(program, arena.worktree / program.name)
    return arena


def said(arena: Arena) -> dict[str, str]:
    """What the guest's program printed: `name answer`."""
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict == "passed", (run.stdout_tail, run.stderr_tail)
    return dict(line.rsplit(" ", 1) for line in run.stdout_tail.splitlines())


def overlay(**more: Any) -> dict[str, Any]:
    return {"settings": {"workspaces": {"worktree": "overlay"}}, **more}


# --- marks


def test_r_no_mark_of_an_overlay_can_be_made_by_a_guest(
    guests: Callable[..., Arena], programs: Path, tmp_path: Path
) -> None:
    """Control: whoever may make them hides a file of the checkout below without deleting it."""
    layers = OverlayLayers(*(tmp_path / name for name in ("lower", "upper", "work", "merged")))
    for folder in (layers.lower / "d", layers.upper / "d", layers.work, layers.merged):
        folder.mkdir(parents=True)
    (layers.lower / "d" / "x").touch()
    os.setxattr(layers.upper / "d", "trusted.overlay.opaque", b"y")
    mount_overlay(layers)
    hidden = not (layers.merged / "d" / "x").exists()
    unmount_overlay(layers.merged)
    assert hidden, "void"

    arena = start(guests, programs, "./forge marks", **overlay())
    answers = said(arena)
    assert answers["xattr user.x"] == "ok", "void: this file system takes no attributes"
    forged = [name for name in answers if name.startswith(("mknod", "xattr trusted", "whiteout", "redirect"))]
    assert len(forged) == 8
    assert {answers[name] for name in forged} <= {"EPERM", "EINVAL", "EXDEV"}, answers
    kinds = {c.path: c.kind for c in arena.workbench.status(arena.task.id).changes if c.path not in {"race", "forge"}}
    assert kinds == {"f.txt/y": ChangeKind.ADDED, "linked": ChangeKind.ADDED, "newdir": ChangeKind.RENAMED}
    assert {answers["exchange"], answers["tmpfile"]} == {"ok"}, "void"
    tree = arena.workbench.commit(arena.task.id, "x", allow=["."]).tree
    listing = arena.require_git("ls-tree", "-r", "--name-only", tree, cwd=arena.root, git_dir=arena.cache).splitlines()
    assert listing == ["README.md", "d/x", "f.txt/y", "forge", "g.txt", "linked", "newdir", "race"]


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that could be told of what lies below, but for reading times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        names = {name: os.getxattr(path, name, follow_symlinks=False) for name in _attributes(path)}
        times = (info.st_mtime_ns, info.st_ctime_ns)
        found[str(path)] = (info.st_ino, info.st_mode, info.st_uid, info.st_nlink, *times, content, str(names))
    return found


def _attributes(path: Path) -> list[str]:
    return os.listxattr(path, follow_symlinks=False)


def test_r_nothing_done_in_a_worktree_reaches_the_checkout_below_or_another_task(
    guests: Callable[..., Arena], programs: Path
) -> None:
    """Through descriptors and mappings from before the copy, by every call that changes a file or directory.

    Control: each of them did change the worktree it was made in.
    """
    arena = start(guests, programs, "./forge poison", **overlay(files=POISONED))
    other = arena.workbench.create_task(arena.repo_id)
    (pristine,) = (arena.home / "repositories" / "pristine" / arena.repo_id).glob("*/")
    before = seen(pristine)
    answers = said(arena)
    assert answers.pop("fallocate") == "EOPNOTSUPP", "guests may not reserve disk: policies/seccomp.json"
    assert set(answers.values()) == {"ok"}, answers
    changed = {c.path for c in arena.workbench.status(arena.task.id).changes}
    assert {"README.md", "f.txt", "g.txt", "m.txt", "t.txt", "l.txt", "d/x"} <= changed, "void"
    assert seen(pristine) == before
    assert arena.workbench.status(other.id).changes == ()
    root = arena.worktree.with_name(other.id)
    assert {name: (root / name).read_bytes() for name in POISONED} == POISONED


POISONED = {**FILES, "m.txt": b"m\n" * 3000, "t.txt": b"t\n", "l.txt": b"l\n"}


# --- what a status does not show


@pytest.mark.one_git
def test_r_what_lies_deeper_than_a_path_may_be_long_is_named(arena: Arena) -> None:
    """Such a directory cannot be opened from the root. Control: the file is there for who goes down step by step."""
    folder = os.open(arena.worktree, os.O_PATH)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=folder)
        folder, above = os.open("x" * 250, os.O_PATH, dir_fd=folder), folder
        os.close(above)
    os.close(os.open("payload.py", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    assert stat.S_ISREG(os.stat("payload.py", dir_fd=folder, follow_symlinks=False).st_mode)
    os.close(folder)
    (rejected,) = arena.workbench.status(arena.task.id).rejected
    assert len(rejected) > 4000
    arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert not arena.worktree.exists()


MESS = """
chmod 7777 f.txt g.txt; chmod 1777 d; mkfifo d/pipe; ln -s / root; ln g.txt alias
truncate -s 600M sparse; n=$(printf %0255d 0); mkdir $n; echo x >$n/$n; mkdir locked; echo x >locked/in
chmod 000 locked; mkdir d/.git .GIT; echo x >d/untracked; touch .sandbox-write-1
i=0; while [ $i -lt 120 ]; do mkdir deep; cd deep; i=$((i+1)); done; cd /workspace; mkdir -p build; mv deep build/
chmod 000 /workspace; echo done 1
"""


@BOTH
def test_r_a_mess_made_inside_is_answered_and_removed(
    layout: str, guests: Callable[..., Arena], programs: Path
) -> None:
    """Typed answers, also from a root that the guest has closed for itself; then nothing is left of it."""
    files = {**FILES, ".gitignore": b"/build/\n"}
    arena = start(guests, programs, MESS, settings={"workspaces": {"worktree": layout}}, files=files)
    assert said(arena) == {"done": "1"}
    assert stat.S_IMODE(arena.worktree.stat().st_mode) == 0, "void"
    with refused(ErrorCode.QUOTA_EXCEEDED):  # the sparse file
        arena.workbench.status(arena.task.id)
    (arena.worktree / "sparse").unlink()
    status = arena.workbench.status(arena.task.id)
    assert {".GIT", ".sandbox-write-1", "d/.git", "d/pipe", "root"} <= set(status.rejected)
    shown = {c.path for c in status.changes}
    assert {"alias", "f.txt", "g.txt", "locked/in", f"{'0' * 255}/{'0' * 255}"} <= shown
    tree = arena.workbench.commit(arena.task.id, "x", allow=["."]).tree
    listing = arena.require_git("ls-tree", "-r", tree, cwd=arena.root, git_dir=arena.cache).splitlines()
    assert {line.split()[0] for line in listing} == {"100644", "100755"}
    arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert [p for kind in ("worktrees", "layers") for p in (arena.home / "repositories" / kind).glob("*/*")] == []


def test_r_options_of_a_mount_are_never_cut(tmp_path: Path) -> None:
    """Control: the kernel takes one page of them, drops the rest without a word, and mounts."""
    layers = OverlayLayers(*(tmp_path / name for name in ("lower", "upper", "work", "merged")))
    folders = f"lowerdir={layers.lower},upperdir={layers.upper},workdir={layers.work}"
    options = f"{folders},redirect_dir=off,metacopy=off,index=off"
    room = os.sysconf("SC_PAGE_SIZE") - 1 - len(options)
    long = [str(folder) for folder in (layers.lower, layers.upper, layers.work)]
    for at in range(room):  # one more character in each in turn, a name of 200 at most
        long[at % 3] += "/" if at // 3 % 200 == 0 else "x"
    lower, upper, work = map(Path, long)
    layers = OverlayLayers(lower, upper, work, layers.merged)
    for folder in (layers.lower, layers.upper, layers.work, layers.merged):
        folder.mkdir(parents=True)
    whole = options.replace(str(tmp_path / "lower"), long[0]).replace(str(tmp_path / "upper"), long[1])
    whole = whole.replace(str(tmp_path / "work"), long[2]) + ",xino=on"
    assert ctypes.CDLL(None).mount(b"overlay", os.fsencode(layers.merged), b"overlay", 0, whole.encode()) == 0, "void"
    unmount_overlay(layers.merged)
    with pytest.raises(OSError, match="too long"):
        mount_overlay(layers)
    assert not is_mount_point(layers.merged)


# --- rooms


def laid_out(root: Path) -> dict[str, tuple[str, bytes]]:
    """What git would call each leaf below a directory."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[name] = ("120000", os.fsencode(path.readlink()))
        elif stat.S_ISREG(mode):
            assert stat.S_IMODE(mode) in {0o644, 0o755} or name == ".git"
            found[name] = ("100755" if mode & stat.S_IXUSR else "100644", path.read_bytes())
        else:
            assert stat.S_ISDIR(mode)
            assert list(path.iterdir()), "git has no empty directories"
    return found


def stored(git: Git, tree: str) -> dict[str, tuple[str, bytes]]:
    leaves = [e for e in list_tree(git, tree) if e.mode != "160000"]
    contents = read_blobs(git, [e.oid for e in leaves])
    return {os.fsdecode(e.path): (e.mode, c) for e, c in zip(leaves, contents, strict=True)}


def turn_round(root: Path) -> None:
    """Every kind of leaf becomes another; files in the places of submodules."""
    for name in ("to-dir", "to-link", "link", "gone/a"):
        (root / name).unlink()
    (root / "gone").rmdir()
    (root / "to-dir").mkdir()
    (root / "to-dir" / "x").write_bytes(b"x")
    (root / "to-link").symlink_to("f.txt")
    (root / "link").write_bytes(b"was a link")
    (root / "run").chmod(0o4644)
    (root / "f.txt").chmod(0o2777)
    shutil.rmtree(root / "dir")
    (root / "dir").write_bytes(b"was a directory")
    (root / "sub").write_bytes(b"in the place of a submodule")
    os.setxattr(root / "kept", "user.x", b"y")
    os.utime(root / "kept", (0, 0))
    (root / "kept").chmod(0o600)


@BOTH
@pytest.mark.one_git
def test_r_a_room_holds_the_committed_tree_to_the_byte(layout: str, make_arena: Callable[..., Arena]) -> None:
    """From the shared checkout of the base and from nothing. Control: a room one file off is not the tree."""
    arena = make_arena(settings={"workspaces": {"worktree": layout}})
    plumbing = Plumbing(arena, arena.remote)
    blob, tree = plumbing.blob, plumbing.tree
    names = [
        *(("100644", name, blob(name)) for name in (b"f.txt", b"kept", b"to-dir", b"to-link")),
        ("120000", b"link", blob(b"f.txt")),
        ("120000", b"out", blob(b"../../etc/passwd")),
        ("100755", b"run", blob(b"#!/bin/sh\n")),
        ("40000", b"dir", tree(("100644", b"a", blob(b"a")), ("100644", b"b", blob(b"b")))),
        ("40000", b"gone", tree(("100644", b"a", blob(b"a")))),
        ("160000", b"other", "2" * 40),
        ("160000", b"sub", "1" * 40),
    ]
    plumbing.publish(tree(*sorted(names, key=lambda n: n[1] + b"/" * (n[0] == "40000"))))
    base = arena.workbench.status(arena.new_task().id).base_commit
    turn_round(arena.worktree)
    committed = arena.workbench.commit(arena.task.id, "x").tree
    git = Git(arena.cache)
    wanted = stored(git, committed)
    assert wanted["sub"] == ("100644", b"in the place of a submodule"), "void"
    assert len(wanted) == 9
    services = build_services(arena.home, arena.build_environment(), allow_file=True)
    near = arena.require_git("rev-parse", f"{base}^{{tree}}", cwd=arena.root, git_dir=arena.cache)
    for from_what in (near, "0" * 40):
        with clean_room(services, arena.repo_id, git, (committed, from_what), AddedFiles()) as room:
            found = laid_out(room.root)
            assert is_mount_point(room.root), "on a disk of its own"
        assert found.pop(".git")[1].startswith(b"gitdir: /nonexistent/")
        assert found == wanted
        assert found != stored(git, near), "void"
    arena.workbench.restore(arena.task.id, "base")
    assert [f.path for f in arena.workbench.diff(arena.task.id).files] == ["sub"], (
        "a directory cannot say that it is a submodule"
    )
    arena.workbench.restore(arena.task.id, "head")
    assert arena.workbench.status(arena.task.id).changes == ()


# --- races


SWAPPER = """
mkdir own; echo innocent >own/f; ln -s '{outside}' link; ./race swap own link &
while [ ! -e stop ]; do sleep 0.1; done
"""


@contextmanager
def swapping(guests: Callable[..., Arena], programs: Path, layout: str) -> Iterator[tuple[Arena, Path]]:
    """A check that runs in its container swaps `own` for a link that leads out. Nothing outside may change."""
    arena = start(guests, programs, "exec sh ./swap", settings={"workspaces": {"worktree": layout}})
    (arena.worktree / "swap").write_text(SWAPPER.format(outside=arena.outside))
    before = arena.read_canaries()
    done: list[Any] = []
    check = threading.Thread(target=lambda: done.append(arena.workbench.run_checks(arena.task.id, ["go"])), daemon=True)
    check.start()
    own, ends = arena.worktree / "own", time.monotonic() + 30
    while not own.is_symlink() and time.monotonic() < ends:
        assert check.is_alive(), done
    try:
        yield arena, own
        assert check.is_alive(), "void: the guest ended"
    finally:
        (arena.worktree / "stop").touch()
        check.join(30)
        assert not check.is_alive()
    assert arena.read_canaries() == before
    assert not arena.in_odb(SECRET)


def control(own: Path, naive: Callable[[], bool]) -> None:
    """What looks first and then acts by name has to escape within the budget."""
    ends = time.monotonic() + 2 * BUDGET_S
    while True:
        assert time.monotonic() < ends, "void: the naive way never escaped"
        with contextlib.suppress(OSError):
            if not own.is_symlink() and naive():
                return


@BOTH
def test_r_h05_h06_a_guest_that_swaps_leaks_nothing_to_any_read(
    layout: str,
    guests: Callable[..., Arena],
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
) -> None:
    monkeypatch.setattr(lifecycle.lock_task.__wrapped__, "__defaults__", (0.1, None))  # type: ignore[attr-defined]
    with swapping(guests, programs, layout) as (arena, own), WorktreeFiles(arena.worktree) as files:
        control(own, lambda: (own / "f").read_bytes() == SECRET)
        wb, task_id, secret = arena.workbench, arena.task.id, SECRET.decode().strip()
        for change in (wb.snapshot, wb.fork_task):
            with refused(ErrorCode.CONFLICT):
                change(task_id)
        tried, query = Counter[str](), SearchQuery(pattern="TOP|innocent")
        reads: dict[str, Callable[[], str]] = {
            "below": lambda: files.read(RepoPath("own/f")).decode(),
            "read": lambda: wb.read_file(task_id, "own/f").content,
            "line": lambda: wb.read_file(task_id, "own/f", 1, 1).content,
        }
        looks: dict[str, Callable[[], object]] = {
            "status": lambda: wb.status(task_id),
            "diff": lambda: wb.diff(task_id),
            "search": lambda: wb.search(task_id, query),
        }
        ends = time.monotonic() + RACE_S
        while time.monotonic() < ends:
            for name, read in [*reads.items()] * 500:
                tried[name] += 1
                with contextlib.suppress(SandboxError):
                    assert read() == "innocent\n"
            for name, look in looks.items():
                tried[name] += 1
                with contextlib.suppress(SandboxError):
                    assert secret not in str(look())
    record_property("tried", dict(tried))
    assert set(tried) == {*reads, *looks}


@BOTH
def test_r_h08_a_guest_that_swaps_moves_no_write(
    layout: str,
    guests: Callable[..., Arena],
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
) -> None:
    """Below the lock, which would not let anybody write while a check runs."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # more attempts
    tried, done = Counter[str](), Counter[str]()
    with swapping(guests, programs, layout) as (arena, own), WorktreeFiles(arena.worktree) as files:
        was = arena.outside.stat().st_mtime_ns
        (arena.outside / "bait").mkdir()

        def naive() -> bool:
            (own / "bait").rmdir()
            return not (arena.outside / "bait").exists()

        control(own, naive)
        os.utime(arena.outside, ns=(0, was))
        steps: dict[str, Callable[[], object]] = {
            "write": lambda: files.write(RepoPath("own/n"), b"x", executable=False, owner=(64000, 64000)),
            "replace": lambda: files.write(RepoPath("own/f"), b"innocent\n", executable=False, owner=None),
            "deep": lambda: files.write(RepoPath("own/a/b/c"), b"x", executable=True, owner=(64000, 64000)),
            "link": lambda: files.write_link(RepoPath("own/l"), b"f", owner=None),
            "secret": lambda: files.remove(RepoPath("own/secret")),
            "remove": lambda: files.remove(RepoPath("own/n")),
            "clear": lambda: files.remove(RepoPath("own/a/b/c")),
        }
        ends = time.monotonic() + RACE_S
        while time.monotonic() < ends:
            for name, step in steps.items():
                tried[name] += 1
                with contextlib.suppress(SandboxError):
                    step()
                    done[name] += 1
        assert sorted(p.name for p in arena.outside.iterdir()) == ["f", "secret"]
    record_property("tried", dict(tried))
    assert done.pop("secret", 0) == 0
    assert set(done) == steps.keys() - {"secret"}


def test_r_p10_a_removal_under_the_swap_changes_no_mode_outside(
    tmp_path: Path, racer: Callable[..., Any], record_property: Any
) -> None:
    """A directory without permissions is given them first. Control: stat and chmod by name."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    root = tmp_path / "root"

    def prepare() -> None:
        root.mkdir(exist_ok=True)
        for name in ("a", "b"):
            with contextlib.suppress(OSError):
                (root / name).unlink()
        with contextlib.suppress(OSError):
            (root / "a").mkdir(mode=0)
            (root / "b").symlink_to(outside)

    def naive() -> bool:
        if stat.S_ISDIR((root / "a").lstat().st_mode):
            (root / "a").chmod(0o700)
        return stat.S_IMODE(outside.stat().st_mode) == 0o700

    prepare()
    with racer("swap", root / "a", root / "b"):
        control(root / "none", naive)
        outside.chmod(0o755)
        attempts, ends = 0, time.monotonic() + RACE_S
        while time.monotonic() < ends:
            attempts += 1
            with contextlib.suppress(SandboxError):
                checkout.remove_tree(root)
            prepare()
            assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    record_property("attempts", attempts)
    assert attempts > 100
