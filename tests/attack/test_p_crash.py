"""THREATS P03 in small: the controller is killed at random points; the next run works."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.inventory import left_behind
from sandbox.engine.connection import Engine
from tests.attack.arena import Arena
from tests.attack.test_i_output import cli

pytestmark = pytest.mark.must


def test_p03_kill_9_at_random_points_then_the_next_run_works(
    guests: Callable[..., Arena], engine: Engine, record_property: Any
) -> None:
    """And it takes away what the killed ones left; what is not in its way `gc` does.

    Control: kills hit a living controller, and some of them while its container runs.
    """
    arena = guests("sh", "-c", "sleep 0.6; exit 0", extra="timeout_s = 20")
    for _ in range(2):
        started = time.monotonic()
        assert cli(arena, "run", str(arena.remote)).returncode == 0
        whole = time.monotonic() - started
    label = f"space.sandbox.instance={(arena.home / 'instance').read_text()}"
    rng, hit = random.Random(3), 0  # noqa: S311 - points in time
    command = [str(Path(sys.executable).with_name("sandbox")), "--home", str(arena.home), "run", str(arena.remote)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.operator)}
    containers: list[Any] = []
    for _ in range(10):
        victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
        time.sleep(rng.uniform(0.05, 0.95) * whole)
        hit += victim.poll() is None
        victim.kill()
        victim.wait()
        containers = engine.api.containers(all=True, filters={"label": label}) or containers
    assert hit >= 5, "void: the controller had ended before it was killed"
    assert containers, "void: no kill hit a running check"
    done = cli(arena, "run", str(arena.remote))
    assert done.returncode == 0, done.stderr
    assert len(arena.wb.repositories()) == 1

    containers = engine.api.containers(all=True, filters={"label": label})
    rooms = list((arena.home / "repositories" / "rooms").iterdir())
    temporary = [p for p in arena.home.rglob("*") if p.name.endswith((".tmp", ".incoming"))]
    record_property("left", f"{len(containers)} containers, {len(rooms)} rooms, {len(temporary)} temporary files")
    assert containers == []
    assert rooms == []
    assert cli(arena, "gc").returncode == 0
    assert left_behind(arena.home, engine) == []
    assert not [p for p in temporary if p.exists()]


def test_l21_a_guest_of_a_killed_controller_ends_before_anybody_edits(
    guests: Callable[..., Arena], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with nobody looking for it, the guest goes on writing after a commit. (A file that only grows.)"""
    arena = guests("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >> counter; done", extra="timeout_s = 60")
    arena.new_task()
    environ = {"PATH": os.environ["PATH"], "HOME": str(arena.operator), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "sandbox", "--home", str(arena.home), "check", "run", arena.task.id, "go"]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    counter = arena.wt / "counter"
    wait_until(counter.exists)
    victim.kill()
    victim.wait()

    with monkeypatch.context() as without:
        without.setattr("sandbox.workbench.tasks.end_orphans", lambda *_: None)
        arena.wb.commit(arena.task.id, "beside a living guest")
        wait_until(changes(counter))

    arena.wb.commit(arena.task.id, "after its end")
    label = f"space.sandbox.instance={(arena.home / 'instance').read_text()}"
    assert engine.api.containers(all=True, filters={"label": label}) == []
    assert not list((arena.home / "repositories" / "tasks").glob("*guest*"))
    assert arena.wb.status(arena.task.id).dirty is False


def changes(path: Path) -> Callable[[], bool]:
    before = path.read_bytes()
    return lambda: path.read_bytes() != before


def wait_until(claim: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < ends, "void: it did not happen in time"
        time.sleep(0.02)
