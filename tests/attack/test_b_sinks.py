"""THREATS B: configuration and attributes that make git run programs.

Each sink is planted in a repository that replaces the worktree's `.git`, in a nested one, and in the remote itself.
Control: plain git in a copy of that worktree.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from devtools.waiting import wait_until
from sandbox.attack.harness.scene import remove
from sandbox.attack.suites import sinks
from sandbox.attack.suites.sinks import CONFIGURED_HOOKS
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import process
from sandbox.git.process import Git
from tests.attack.arena import GIT, Arena, variants

pytestmark = pytest.mark.must
DAEMON = (2, 55)


SINKS = {name.lower(): sink for name, sink in sinks.SINKS.items()}
"""What ships with `sandbox doctor --attack`, here in more places and on more gits."""
NEWEST_ONLY = {"b04"}
IN_BOTH_PLACES = ("b01", "b02", "b05", "b18")
"""A configured program, hooks, attributes, a remote: the entry that ships has both places of every sink, and
`tests/attack/test_shipped.py` runs it."""
IN_A_REMOTE = ("b01", "b02", "b05", "b15", "b16", "b18", "b19", "b20")
"""One of each kind: a program, hooks, attributes, what a server runs, another address, a promisor, an include, and a
second configuration."""


def plant(arena: Arena, name: str, top: Path) -> None:
    """Make `top` a repository with the sink in it, and a file whose change git has to look into."""
    sink, payload = SINKS[name], arena.script(name, then="exit 1")
    fill = {"p": payload, "url": str(arena.remote)}

    def filled(text: str) -> str:
        return re.sub(r"\{(p|url)\}", lambda m: fill[m[1]], text)

    git = arena.evil_git_dir(top / ".git", filled(sink.config))
    for path, text in sink.files:
        target = git / path.removeprefix("git/") if path.startswith("git/") else top / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(filled(text))
    for path in sink.programs:
        target = git / path.removeprefix("git/") if path.startswith("git/") else top / path
        target.parent.mkdir(exist_ok=True)
        shutil.copy(payload, target)
    (top / "f.txt").write_text("one\ntwo\nTHREE\n")  # the same size
    for path in ("g.txt", "d/x", "README.md"):
        if not (top / path).exists():
            (top / path).parent.mkdir(exist_ok=True)
            (top / path).write_text("x\n")


def set_off(arena: Arena, name: str, top: Path) -> None:
    """What somebody would type, in a copy."""
    copy = arena.root / "copy"
    shutil.copytree(top, copy, symlinks=True)
    script = SINKS[name].commands.replace("{p}", str(arena.root / "scripts" / name)).replace("git ", "$git ")
    environ = {
        "git": f"{arena.git_program} -c safe.directory=* -c user.name=a -c user.email=a@b",
        "PATH": "/usr/bin:/bin", "HOME": str(arena.root), "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    subprocess.run(["/bin/sh", "-c", script], cwd=copy, env=environ, capture_output=True, timeout=30, check=False)
    shutil.rmtree(copy)


@pytest.mark.parametrize("place", ["pointer", "nested"])
@pytest.mark.parametrize("name", variants(SINKS, *IN_BOTH_PLACES))
def test_b01_to_b21_sink_in_the_worktree(arena: Arena, name: str, place: str) -> None:
    if place == "pointer":
        (arena.worktree / ".git").unlink()
        top = arena.worktree
    else:
        top = arena.worktree / "sub"
        top.mkdir()
    plant(arena, name, top)
    if name in NEWEST_ONLY and arena.git_version < CONFIGURED_HOOKS:
        set_off(arena, name, top)
        assert arena.marks() == set()  # nothing to prove with this git; the product's half still runs
    else:
        arena.require_mark(name, lambda: set_off(arena, name, top))
    before = arena.read_canaries()
    arena.run_every_operation()
    assert arena.marks() == set()
    assert arena.read_canaries() == before


@pytest.mark.parametrize("name", variants(SINKS, *IN_A_REMOTE))
def test_b_e12_sink_in_the_remote_itself(arena: Arena, name: str) -> None:
    """A path given to `sandbox run` may be a repository somebody prepared. Control: as above, in that repository."""
    hostile = arena.root / "hostile"
    hostile.mkdir()
    plant(arena, name, hostile)
    if not (name in NEWEST_ONLY and arena.git_version < CONFIGURED_HOOKS):
        arena.require_mark(name, lambda: set_off(arena, name, hostile))
    repository = arena.workbench.clone(str(hostile)).repository
    task = arena.workbench.create_task(repository.id)
    arena.workbench.status(task.id)
    arena.workbench.diff(task.id)
    with pytest.raises(SandboxError) as caught:
        arena.workbench.run(str(hostile), profile="generic")
    assert caught.value.code is ErrorCode.INVALID_INPUT  # nothing to run
    assert arena.marks() == set()


def test_b25_tampered_configuration_of_ours_runs_no_hook(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """No way is known to write there. Control: the product's own commands, without that part of the belt."""
    events = "".join(f"\tevent = {event}\n" for event in ("reference-transaction", "post-index-change", "pre-push"))
    with (arena.cache / "config").open("a") as stream:
        stream.write(f'[hook "e"]\n{events}\tcommand = {arena.script("b25")}\n')
    git = Git(arena.cache, arena.git_program if arena.git_program != GIT else "")
    with monkeypatch.context() as patched:
        patched.setattr(process, "_HARDENING", tuple(c for c in process._HARDENING if not c.startswith("hook.")))
        for words in (
            ("update-ref", "refs/sandbox/x", "refs/remotes/origin/main"),
            ("read-tree", "refs/remotes/origin/main"),
        ):
            run = partial(git.run, *words, env={"GIT_INDEX_FILE": str(arena.root / "index")})
            if arena.git_version >= CONFIGURED_HOOKS:
                arena.require_mark("b25", run)
    (arena.worktree / "f.txt").write_text("changed\n")
    arena.workbench.commit(arena.task.id, "x")
    arena.workbench.push(arena.task.id)
    assert 'hook "e"' in (arena.cache / "config").read_text(), "void: not in force any more"
    assert arena.marks() == set()


@pytest.mark.parametrize("place", ["pointer", "nested", "remote"])
def test_b27_no_daemon_is_left_behind(arena: Arena, place: str) -> None:
    """Control: one plain `git status` starts a daemon that stays (on Linux since git 2.55)."""
    top = {"pointer": arena.worktree, "nested": arena.worktree / "sub", "remote": arena.root / "hostile"}[place]
    top.mkdir(exist_ok=True)
    remove(top / ".git")
    arena.evil_git_dir(top / ".git", "[core]\n\tfsmonitor = true\n")
    (top / "f.txt").write_text("changed\n")
    copy = arena.root / "copy"
    shutil.copytree(top, copy, symlinks=True)
    arena.git("status", cwd=copy)
    if arena.git_version >= DAEMON:
        assert len(left_behind(arena)) == 1, "void"
    for pid in left_behind(arena):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: left_behind(arena) == [])
    assert arena.run_every_operation() == []
    if place == "remote":
        arena.workbench.create_task(arena.workbench.clone(str(top)).repository.id)
    assert left_behind(arena) == []


def left_behind(arena: Arena) -> list[int]:
    """Processes in the arena that live on although nobody runs a command there. (The dead, not yet reaped, do not.)"""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            where = (path / "cwd").readlink()
        except OSError:
            continue
        if where.is_relative_to(arena.root):
            found.append(int(path.name))
    return found


def test_b_check_run_snapshot_runs_nothing(guests: Callable[..., Arena]) -> None:
    """All sinks at once in a nested repository, and the snapshot that a check run takes."""
    arena = guests("true")
    arena.new_task()
    names = [n for n in SINKS if n not in {"b13", "b14", "b18", "b19", "b20"}]  # they contradict the others
    for name in names:
        (arena.worktree / name).mkdir()
        plant(arena, name, arena.worktree / name)
    for name in ("b01", "b05"):
        arena.require_mark(name, lambda name=name: set_off(arena, name, arena.worktree / name))  # type: ignore[misc]  # a default
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict == "passed"
    assert arena.marks() == set()
