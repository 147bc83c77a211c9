"""THREATS S: what a neighbour or a busy host does to verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from devtools.requirement import unavailable
from sandbox.engine.connection import DockerEngine
from sandbox.models import CheckRun
from sandbox.store.home import Home
from sandbox.workbench import Watch
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]

HICCUP = """
$| = 1;
my $began = time;
print "began\n";
select undef, undef, undef, 1;
exit(time - $began > 5);
"""
"""A test suite with a timeout of its own: it fails when a second takes longer than five."""
STARVED_S = 7.0
ROOM = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }\ntimeout_s = 60"


def starve(arena: Arena, engine: DockerEngine) -> Watch:
    """A host that gives the guest no CPU for a while, once the suite has begun."""

    def follow(_stream: str, chunk: bytes) -> None:
        if b"began" in chunk:
            label = f"space.sandbox.instance={Home(arena.home).instance_id}"
            (guest,) = engine.api.containers(filters={"label": label})
            engine.api.pause(guest["Id"])
            time.sleep(STARVED_S)  # this is the attack, not a wait for it
            engine.api.unpause(guest["Id"])

    return Watch(follow=follow)


def run_once(arena: Arena, watch: Watch | None = None) -> CheckRun:
    (run,) = arena.workbench.run(str(arena.remote), watch=watch).runs
    return run


def outcome_of(run: CheckRun) -> tuple[str, bool]:
    return run.verdict.value, run.cached


def test_s03_a_failure_of_a_starved_host_is_not_served(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: where a first failure is kept, as for a deterministic check, it stays failed on an idle host."""
    kept = guests("perl", "-e", HICCUP, extra=f"{ROOM}\ndeterministic = true")
    assert outcome_of(run_once(kept, starve(kept, engine))) == ("failed", False), "void"
    assert outcome_of(run_once(kept)) == ("failed", True), "void"

    arena = guests("perl", "-e", HICCUP, extra=ROOM)
    starved = run_once(arena, starve(arena, engine))
    assert outcome_of(starved) == ("failed", False), "void"
    again = run_once(arena)
    assert outcome_of(again) == ("passed", False)
    assert again.run_id != starved.run_id
    assert outcome_of(run_once(arena)) == ("passed", True)


@pytest.mark.parametrize("script", ["false", "for i in $(seq 100); do sleep 9 & done"], ids=["fails", "own-pids-limit"])
def test_s03_what_fails_every_time_is_served_after_the_second_run(
    guests: Callable[..., Arena], group: str, script: str
) -> None:
    """Also what reaches its own limit of processes each time, in a group that was never full."""
    arena = guests("sh", "-c", script, extra=ROOM)
    arena.set_group(group, "all_pids = 1000")
    runs = [run_once(arena)]
    if runs[0].usage.forks_refused and runs[0].usage.own_pids_limit is None:
        unavailable("whose limit refused a process is unknown without pids.peak (Linux 6.1) or the groups above")
    runs += [run_once(arena) for _ in range(2)]
    assert [outcome_of(run) for run in runs] == [("failed", False), ("failed", False), ("failed", True)]
