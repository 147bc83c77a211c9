"""THREATS P03 in small: the controller is killed at random points; the next run works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.command import SANDBOX
from devtools.inventory import left_behind
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine
from sandbox.store.home import Home
from tests.attack.arena import Arena
from tests.attack.test_i_output import cli

pytestmark = pytest.mark.must


def test_p03_a_run_takes_away_what_killed_ones_left(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Every step of every command is in tests/e2e/test_kill.py.

    Control: the killed ones leave a room, a container that never started, one that runs on.
    """
    arena = guests("sh", "-c", "sleep 600", extra="timeout_s = 900")
    rooms = arena.home / "repositories" / "rooms"
    label = f"space.sandbox.instance={arena.workbench._services.home.instance_id}"

    def containers() -> list[Any]:
        return list(engine.api.containers(all=True, filters={"label": label}))

    moments: list[Callable[[], object]] = [
        lambda: rooms.is_dir() and any(rooms.iterdir()),
        lambda: any("-run-" in c["Names"][0] for c in containers()),
        lambda: any("-run-" in c["Names"][0] and c["State"] == "running" for c in containers()),
    ]
    command = [str(Path(sys.executable).with_name("sandbox")), "--home", str(arena.home), "run", str(arena.remote)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.operator)}
    for moment in moments:
        victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        wait_until(lambda moment=moment: bool(moment()), 240)  # type: ignore[misc]  # bound for this round
        assert victim.poll() is None, "void: the controller had ended before it was killed"
        victim.kill()
        victim.wait()
        assert any(rooms.iterdir()), "void: the kill left nothing"
    assert containers(), "void: no kill left a container"
    profile = arena.home / "profiles" / "attack.toml"
    profile.write_text(profile.read_text().replace("sleep 600", "sleep 0"))
    done = cli(arena, "run", str(arena.remote))
    assert done.returncode == 0, done.stderr
    assert len(arena.workbench.repositories()) == 1
    assert containers() == []
    assert list(rooms.iterdir()) == []
    assert cli(arena, "gc").returncode == 0
    assert left_behind(arena.home, engine) == []


def test_l21_a_guest_of_a_killed_controller_ends_before_anybody_edits(
    guests: Callable[..., Arena], engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with nobody looking for it, the guest goes on writing after a commit. (A file that only grows.)"""
    arena = guests("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >> counter; done", extra="timeout_s = 60")
    arena.new_task()
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.operator), "PYTHONPATH": str(Path.cwd())}
    command = [*SANDBOX, "--home", str(arena.home), "check", "run", arena.task.id, "go"]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    counter = arena.worktree / "counter"
    wait_until(counter.exists)
    victim.kill()
    victim.wait()

    with monkeypatch.context() as without:
        without.setattr("sandbox.workbench.tasks.lifecycle.remove_orphans", lambda *_: None)
        arena.workbench.commit(arena.task.id, "beside a living guest")
        wait_until(changes(counter))

    arena.workbench.commit(arena.task.id, "after its end")
    label = f"space.sandbox.instance={Home(arena.home).instance_id}"
    assert engine.api.containers(all=True, filters={"label": label}) == []
    assert not list((arena.home / "repositories" / "tasks").glob("*guest*"))
    assert arena.workbench.status(arena.task.id).dirty is False


def changes(path: Path) -> Callable[[], bool]:
    before = path.read_bytes()
    return lambda: path.read_bytes() != before
