"""THREATS S04: the memory of all guests of a host has one bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from devtools.waiting import wait_until
from sandbox.engine.cgroups import find_cgroups, read_held_memory
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.models import CheckRun, Verdict
from sandbox.store.home import Home
from sandbox.workbench.checks.verify_options import VerifyOptions
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]

MIB = 1024**2
BOUND = 96 * MIB
BOUND_FOR_ALL = f"all_memory_bytes = {BOUND}"
HELD = 40 * MIB
ROOM = "limits = {{ memory_bytes = {}, cpus = 1.0, pids = 64 }}\ntimeout_s = 60"
HOLD = f"head -c {HELD} /dev/zero > /tmp/held; echo stored"


def read_held(engine: DockerEngine, arena: Arena) -> dict[str, int]:
    """What the running containers of a home hold in memory, by name."""
    instance = Home(arena.home).instance_id
    held = {}
    for each in engine.api.containers(filters={"label": [f"{INSTANCE_LABEL}={instance}"]}):
        paths = find_cgroups(int(engine.api.inspect_container(each["Id"])["State"]["Pid"]))
        held[each["Names"][0]] = (read_held_memory(paths) if paths else None) or 0
    return held


def hold_in_tasks(arena: Arena, count: int) -> list[str]:
    """Run the check in new tasks, one after the other. Their ids."""
    tasks = [arena.new_task().id for _ in range(count)]
    for task in tasks:
        (run,) = arena.workbench.run_checks(task, ["go"])
        assert run.stdout_tail == "stored\n", (run.verdict, run.stderr_tail)
    return tasks


def wait_until_held(engine: DockerEngine, arena: Arena, least: int) -> dict[str, int]:
    """Version 1 counts memory of files up to two seconds late."""
    ends_at = time.monotonic() + 10
    while sum((held := read_held(engine, arena)).values()) < least and time.monotonic() < ends_at:
        time.sleep(0.1)
    return held


def test_s04_idle_containers_together_stay_within_the_bound(
    group: str, guests: Callable[..., Arena], engine: DockerEngine
) -> None:
    """Control: without a group they pass it. With one, the container that was used longest ago makes room."""
    loose, bound = (guests("sh", "-c", HOLD, extra=ROOM.format(48 * MIB)) for _ in range(2))
    loose.set_group("", BOUND_FOR_ALL)
    hold_in_tasks(loose, 3)
    assert sum(wait_until_held(engine, loose, 3 * HELD).values()) > BOUND, "void"
    bound.set_group(group, BOUND_FOR_ALL)
    first, *others = hold_in_tasks(bound, 3)
    held = wait_until_held(engine, bound, 2 * HELD)
    assert 2 * HELD <= sum(held.values()) <= BOUND
    assert sorted(name[-12:] for name in held) == sorted(task[-12:] for task in others), first


def test_s04_a_check_that_other_guests_leave_no_memory_is_not_blamed(
    group: str, guests: Callable[..., Arena], engine: DockerEngine
) -> None:
    """Two homes of one host. Controls: the check passes alone; and one that passes its own limit is to blame."""
    greedy = guests("sh", "-c", f"head -c {60 * MIB} /dev/zero > /tmp/held; echo stored", extra=ROOM.format(80 * MIB))
    modest = guests("sh", "-c", HOLD, extra=ROOM.format(64 * MIB))
    wrong = guests("sh", "-c", HOLD, extra=ROOM.format(16 * MIB))
    for arena in (modest, greedy, wrong):
        arena.set_group(group, BOUND_FOR_ALL)
        arena.new_task()
    assert run_fresh(modest).verdict is Verdict.PASSED, "void"
    hold_in_tasks(greedy, 1)
    blamed = run_fresh(modest)
    assert (blamed.verdict, blamed.usage.host_out_of_memory) == (Verdict.KILLED, True)
    own = run_fresh(wrong)
    assert (own.verdict, own.usage.host_out_of_memory) == (Verdict.OOM_KILLED, None)


FORKS = "for i in $(seq 30); do sleep 60 & done; touch started; while ! [ -e stop ]; do sleep 0.05; done"


@pytest.mark.parametrize("bound", [50, 1000])
def test_s04_processes_of_all_guests_have_one_bound(group: str, guests: Callable[..., Arena], bound: int) -> None:
    """Two guests that may have 64 each. Control: with a higher bound for all both have what they want.

    A fork that this bound refuses is on record, so that the failure counts for no verdict.
    """
    arena = guests("sh", "-ec", FORKS, extra=ROOM.format(64 * MIB))
    arena.set_group(group, f"all_pids = {bound}")
    first, second = arena.new_task(), arena.new_task()
    assert first.worktree_path is not None
    assert second.worktree_path is not None
    (second.worktree_path / "stop").touch()
    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(arena.workbench.run_checks, first.id, ["go"])
        wait_until((first.worktree_path / "started").exists)
        (run,) = arena.workbench.run_checks(second.id, ["go"])
        (first.worktree_path / "stop").touch()
        (held,) = holder.result()
    assert held.verdict is Verdict.PASSED, held.stderr_tail
    if bound > 64:
        assert run.verdict is Verdict.PASSED, run.stderr_tail
    else:
        assert run.verdict is Verdict.FAILED
        assert run.usage.forks_refused, (run.usage, run.stderr_tail)
        assert not run.usage.own_pids_limit, "void: the kernel says that the check's own limit refused it"


def run_fresh(arena: Arena) -> CheckRun:
    """Run the check in a clean room, whose guest is not kept."""
    (run,) = arena.workbench.run(str(arena.remote), options=VerifyOptions(cache=False)).runs
    return run
