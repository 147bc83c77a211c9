"""THREATS E12: a local path as a remote is somebody's repository; git would run what is in it on this host, as us."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools import newergit
from devtools.host_speed import slowness
from devtools.requirement import unavailable
from sandbox.attack.harness.scene import FILES, SECRET, hash_of
from sandbox.errors import ErrorCode
from sandbox.models import UncommittedChanges
from sandbox.workbench.checks.uncommitted import find_uncommitted_changes
from sandbox.workbench.repositories.clone import update_cache
from sandbox.workspaces.working_directory import BUDGET_S
from tests.attack.arena import Arena, outcome, variants

pytestmark = pytest.mark.must

HOOKS = ("pre-receive", "update", "post-receive", "post-update", "reference-transaction")
ATTACHED = "[gc]\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n"  # a control leaves nothing running
PATCH = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"


@dataclass(frozen=True)
class Trap:
    """What the owner of the repository put into it. `{p}` is the payload, `{b}` the branch that will be pushed."""

    config: str = ""
    hooks: tuple[str, ...] = ()
    alternates: bool = False
    checked_out: bool = False  # HEAD is the branch that will be pushed, not born yet


TRAPS = {
    **{f"e12_{hook}": Trap(hooks=(f"hooks/{hook}",)) for hook in HOOKS},
    "e12_hooks_path": Trap("[core]\n\thooksPath = elsewhere\n", hooks=("elsewhere/update",)),
    "e12_proc_receive": Trap("[receive]\n\tprocReceiveRefs = refs/heads\n", hooks=("hooks/proc-receive",)),
    "e12_alternates": Trap("[core]\n\talternateRefsCommand = {p}\n", alternates=True),
    "e12_push_to_checkout": Trap(
        "[core]\n\tbare = false\n\tworktree = ..\n[receive]\n\tdenyCurrentBranch = updateInstead\n",
        hooks=("hooks/push-to-checkout",),
        checked_out=True,
    ),
    "e12_fsmonitor": Trap(
        "[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {p}\n[receive]\n\tdenyCurrentBranch = updateInstead\n",
        checked_out=True,
    ),
    "e12_gc": Trap(
        "[maintenance]\n\tstrategy = gc\n[gc]\n\tauto = 1\n[receive]\n\tautogc = true\n",
        hooks=("hooks/pre-auto-gc",),
    ),
}


LIKE_ANOTHER = {"e12_update", "e12_post-receive", "e12_post-update"}
"""Hooks of that repository, as `pre-receive` and `reference-transaction` are."""

DECIDING = {"e12_pre-receive", "e12_update", "e12_hooks_path", "e12_proc_receive"}
"""They may decline a push, which is refused instead of sent past them."""


def set_trap(arena: Arena, name: str, trap: Trap, branch: str) -> None:
    payload = arena.script(name)
    with (arena.remote / "config").open("a") as stream:
        stream.write(ATTACHED + trap.config.replace("{p}", payload))
    for hook in trap.hooks:
        (arena.remote / hook).parent.mkdir(exist_ok=True)
        shutil.copy(payload, arena.remote / hook)
    if trap.alternates:
        other = arena.root / "other.git"
        shutil.copytree(arena.remote, other)
        (arena.remote / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    if trap.checked_out:
        (arena.remote / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    if "gc" in name:  # gc.auto counts loose objects in this one directory
        full = arena.remote / "objects" / "17"
        full.mkdir(exist_ok=True)
        for number in range(40):
            (full / f"{number:038x}").touch()


def plain_push(arena: Arena, branch: str, git: str) -> None:
    """What somebody would type, at a copy of the repository in a directory of its own."""
    around = arena.root / "copy"
    around.mkdir()
    shutil.copytree(arena.remote, around / "remote.git")
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.root), "GIT_CONFIG_NOSYSTEM": "1"}
    argv = [git, f"--git-dir={arena.cache}", "push", str(around / "remote.git"), f"+refs/heads/{branch}"]
    subprocess.run(argv, env=environ, capture_output=True, timeout=30, check=False)
    for _ in range(100):  # the git at the other end may still tidy up, in the background
        shutil.rmtree(around, ignore_errors=True)
        if not around.exists():
            return
        time.sleep(0.1)
    pytest.fail(f"{around} is still used")


def committed(arena: Arena) -> str:
    """A task with a commit; its branch."""
    arena.new_task()
    arena.workbench.apply_patch(arena.task.id, PATCH, {"g.txt": hash_of(FILES["g.txt"])})
    arena.workbench.commit(arena.task.id, "work")
    return arena.task.branch


@pytest.mark.parametrize("name", variants(TRAPS, *(TRAPS.keys() - LIKE_ANOTHER)))
def test_e12_push_to_a_local_path_runs_nothing_of_it(arena: Arena, name: str) -> None:
    """Control: plain git pushes the same branch to a copy."""
    branch = committed(arena)
    set_trap(arena, name, TRAPS[name], branch)
    arena.require_mark(name, lambda: plain_push(arena, branch, arena.git_program))

    refusal = outcome(lambda: arena.workbench.push(arena.task.id))

    assert arena.marks() == set()
    if name in DECIDING:
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (ErrorCode.POLICY_VIOLATION, "hooks_not_run")
        for hook in TRAPS[name].hooks:  # a program no more; its owner sees that no hook was skipped before
            (arena.remote / hook).chmod(0o644)
        refusal = outcome(lambda: arena.workbench.push(arena.task.id))
        assert arena.marks() == set()
    if not TRAPS[name].checked_out and "proc_receive" not in name:  # those accept no push without their traps
        assert refusal is None
        assert (
            arena.require_git("rev-parse", branch, cwd=arena.root, git_dir=arena.remote)
            == arena.workbench.task(arena.task.id).head_commit
        )


@pytest.mark.one_git
def test_e12_hooks_in_the_configuration_of_a_newer_git(make_arena: Callable[..., Arena]) -> None:
    """git 2.54 runs commands that the configuration names as hooks, wherever core.hooksPath leads."""
    try:
        newer = newergit.find()
    except FileNotFoundError as error:
        unavailable(str(error))
    except newergit.NotOffered as absent:
        pytest.skip(str(absent))
    arena = make_arena(settings={"git": {"executable": str(newer)}})
    branch = committed(arena)
    for event in HOOKS:
        with (arena.remote / "config").open("a") as stream:
            stream.write(f'[hook "{event}-x"]\n\tevent = {event}\n\tcommand = {arena.script(event)}\n')
    plain_push(arena, branch, str(newer))
    assert arena.marks() == set(HOOKS), "void"
    arena.delete_marks()

    refusal = outcome(lambda: arena.workbench.push(arena.task.id))
    assert refusal is not None
    assert refusal.reason == "hooks_not_run"
    for event in ("pre-receive", "update"):
        arena.require_git("config", f"hook.{event}-x.enabled", "false", cwd=arena.root, git_dir=arena.remote)
    sent = arena.workbench.push(arena.task.id)

    assert set(sent.hooks_not_run) == {"reference-transaction", "post-receive", "post-update"}
    assert arena.marks() == set()


def test_e12_clone_from_a_local_path_runs_nothing_of_it(make_arena: Callable[..., Arena]) -> None:
    """git takes `uploadpack.packObjectsHook` from the operator only. Control: from there it fires."""
    arena = make_arena()
    payload = arena.script("pack")
    config = f"[uploadpack]\n\tpackObjectsHook = {payload}\n"
    (arena.operator / ".gitconfig").write_text(config)
    env = {"GIT_CONFIG_GLOBAL": str(arena.operator / ".gitconfig")}
    arena.require_mark("pack", lambda: arena.git("clone", "-q", f"file://{arena.remote}", "c", cwd=arena.root, env=env))
    for name, trap in TRAPS.items():
        if not trap.checked_out:
            set_trap(arena, name, trap, "main")
    with (arena.remote / "config").open("a") as stream:
        stream.write(config)

    arena.workbench.clone(str(arena.remote))
    arena.require_git("update-ref", "refs/heads/topic", "refs/heads/main", cwd=arena.root, git_dir=arena.remote)
    arena.delete_marks()  # that was plain git
    arena.workbench.clone(str(arena.remote))

    assert arena.marks() == set()


def working_directory(arena: Arena) -> Path:
    """A stranger's directory with one commit checked out and one file changed."""
    place = arena.root / "theirs"
    arena.require_git("clone", "-q", str(arena.remote), str(place), cwd=arena.root)
    (place / "f.txt").write_text("changed\n")
    return place


def fsmonitor(place: Path, payload: str) -> None:
    with (place / ".git" / "config").open("a") as stream:
        stream.write(f"[core]\n\tfsmonitor = {payload}\n")


def clean_filter(place: Path, payload: str) -> None:
    (place / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    with (place / ".git" / "config").open("a") as stream:
        stream.write(f'[filter "evil"]\n\tclean = {payload}\n')


def nested_repository(place: Path, payload: str) -> None:
    """As a tracked submodule: git opens it to say whether it is clean."""
    nested = place / "nested"
    run_git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run_git, "clone", "-q", str(place), str(nested)], check=True, timeout=60)
    subprocess.run([*run_git, "add", "nested"], cwd=place, check=True, timeout=60, capture_output=True)
    subprocess.run([*run_git, "commit", "-q", "-m", "nested"], cwd=place, check=True, timeout=60)
    fsmonitor(nested, payload)


@pytest.mark.parametrize("trap", [fsmonitor, clean_filter, nested_repository], ids=lambda t: t.__name__)
def test_e12_comparing_a_working_directory_runs_nothing_of_it(arena: Arena, trap: Callable[[Path, str], None]) -> None:
    """Control: plain `git status` there."""
    place = working_directory(arena)
    trap(place, arena.script(trap.__name__))
    arena.require_mark(trap.__name__, lambda: arena.git("status", cwd=place))

    found = compared(arena, place)

    assert arena.marks() == set()
    assert ("f.txt", "modified") in [(c.path, c.kind.value) for c in found.changes]


@pytest.mark.one_git
def test_s14_comparing_a_working_directory_neither_waits_nor_leaves_it(arena: Arena) -> None:
    """Control: a plain read of each name is the secret, or does not end (the pipes have no writer)."""
    place = working_directory(arena)
    (place / "g.txt").unlink()
    (place / "g.txt").symlink_to(arena.outside / "secret")
    for name in ("f.txt", ".git/index", ".git/info/exclude"):
        (place / name).unlink()
        os.mkfifo(place / name)
    (place / "d" / "x").unlink()
    (place / "d").rmdir()
    (place / "d").symlink_to(arena.outside)
    (arena.outside / "x").write_bytes(FILES["d/x"])
    assert (place / "g.txt").read_bytes() == SECRET
    assert (place / "d" / "x").read_bytes() == FILES["d/x"]

    started = time.monotonic()
    found = compared(arena, place)

    assert time.monotonic() - started < 5 * BUDGET_S * slowness()
    assert {(c.path, c.kind.value) for c in found.changes} == {
        ("d", "added"),
        ("d/x", "deleted"),
        ("f.txt", "type_changed"),
        ("g.txt", "type_changed"),
    }


def compared(arena: Arena, place: Path) -> UncommittedChanges:
    """As `run` does, without an engine."""
    services = arena.workbench._services
    registered = update_cache(services, str(place))
    found = find_uncommitted_changes(services.remotes, registered, registered.default_head.commit, registered.facts)
    assert found is not None
    return found
