"""Run one check and say what happened.

The seam: an `Executor` runs a command in a guest and returns facts; everything else here does not know how. Today's
executor starts a fresh container whose main process is the command; one that keeps a task container fits the same hole.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Protocol

from sandbox.checks.output import Follow, Follower, Spool
from sandbox.checks.report import read_report
from sandbox.engine.cgroups import Counters
from sandbox.engine.connection import Engine
from sandbox.engine.container import (
    INSTANCE_LABEL,
    TASK_LABEL,
    Ending,
    Streams,
    WhyStop,
    nothing_stops,
    run_to_end,
)
from sandbox.engine.options import ContainerSpec, create_options
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Check, CheckRun, Usage, Verdict
from sandbox.policy.container import ShippedPolicy
from sandbox.policy.paths import check_path
from sandbox.text import shown


@dataclass(frozen=True)
class Place:
    """Where a check runs: a directory that holds `tree`, and the directory for its report."""

    workspace: Path
    report: Path
    tree: str
    clean_room: bool
    task_id: str | None


@dataclass(frozen=True)
class Guest:
    """What the guest is made of, the same for every check of a profile."""

    image_digest: str
    runtime: str
    user: tuple[int, int]
    git_mask: Path
    hosts: Path
    instance: str
    cpus: int  # of the engine's host


class Executor(Protocol):
    """Runs a check's command once, to its end, its deadline or a reason to stop it, and leaves nothing running."""

    def execute(self, run_id: str, check: Check, place: Place, streams: Streams, why_stop: WhyStop) -> Ending: ...


@dataclass(frozen=True)
class FreshContainer:
    """An executor: one new container a check."""

    engine: Engine
    policy: ShippedPolicy
    guest: Guest

    def execute(self, run_id: str, check: Check, place: Place, streams: Streams, why_stop: WhyStop) -> Ending:
        """Raises: `unsafe_path` when the check's directory is not one, and whatever the engine adapter raises."""
        spec = self._spec(run_id, check, place)
        options = create_options(spec, self.policy)
        deadline_s = check.timeout_s
        return run_to_end(self.engine, spec.name, options, streams, deadline_s=deadline_s, why_stop=why_stop)

    def _spec(self, run_id: str, check: Check, place: Place) -> ContainerSpec:
        workspace = PurePosixPath(self.policy.container.mounts.workspace)
        labels = {INSTANCE_LABEL: self.guest.instance, "space.sandbox.run": run_id, "space.sandbox.check": check.id}
        if place.task_id:
            labels[TASK_LABEL] = place.task_id
        return ContainerSpec(
            name=f"sandbox-{run_id}",
            image=self.guest.image_digest,
            argv=check.argv,
            cwd=workspace / _directory(place.workspace, check.cwd),
            env=check.env,
            limits=check.limits,
            workspace=place.workspace,
            git_mask=self.guest.git_mask,
            report=place.report,
            user=self.guest.user,
            runtime=self.guest.runtime,
            labels=labels,
            cpuset=choose_cpus(check.limits.cpus, self.guest.cpus),
            hosts=self.guest.hosts,
        )


def _directory(workspace: Path, cwd: str) -> str:
    """A check's directory, proven to be one without a link on the way: the runtime would follow it as root."""
    if cwd == ".":
        return "."
    path = check_path(cwd)
    with WorktreeFiles(workspace) as files:
        files.require_directory(path)
    return path


def judge(ending: Ending) -> Verdict:
    """The verdict, from facts the guest cannot forge. Pure."""
    if ending.timed_out:
        return Verdict.TIMED_OUT
    if ending.stopped is not None:
        return ending.stopped
    if ending.oom_killed:
        return Verdict.OOM_KILLED
    if ending.lost:
        return Verdict.KILLED
    return Verdict.PASSED if ending.exit_code == 0 else Verdict.FAILED


def never_started(reason: Verdict) -> Ending:
    """Of a check that was stopped before its guest was."""
    return Ending(None, False, False, datetime.now(UTC), 0.0, Counters(), stopped=reason)


def choose_cpus(wanted: float, available: int, pick: Callable[[int], int] = random.randrange) -> str:
    """A contiguous CPU set for a check, '' when it may use all: `nproc` in the guest then tells the truth."""
    count = math.ceil(wanted)
    if count >= available:
        return ""
    first = pick(available - count + 1)
    return f"{first}-{first + count - 1}" if count > 1 else str(first)


@dataclass(frozen=True)
class Recorder:
    """Runs checks through an executor and keeps their logs under `logs`."""

    executor: Executor
    guest: Guest
    logs: Path

    def run(
        self,
        run_id: str,
        check: Check,
        place: Place,
        follow: Follow | None = None,
        why_stop: WhyStop = nothing_stops,
    ) -> CheckRun:
        """One check, at most once. Raises only for what failed on our side."""
        self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        limit = check.limits.output_bytes
        with ExitStack() as stack:
            out = stack.enter_context(Spool(self.logs / f"{run_id}.stdout", limit))
            err = stack.enter_context(Spool(self.logs / f"{run_id}.stderr", limit))
            follower = stack.enter_context(Follower(follow)) if follow else None
            streams = Streams(_tee("stdout", out, follower), _tee("stderr", err, follower))
            reason = why_stop()
            ending = (
                self.executor.execute(run_id, check, place, streams, why_stop)
                if reason is None
                else never_started(reason)
            )
        return self._record(run_id, check, place, ending, (out, err))

    def _record(self, run_id: str, check: Check, place: Place, ending: Ending, spools: tuple[Spool, Spool]) -> CheckRun:
        out, err = spools
        verdict = judge(ending)
        return CheckRun(
            run_id=run_id,
            check_id=check.id,
            task_id=place.task_id,
            verdict=verdict,
            exit_code=ending.exit_code,
            signal=ending.signal or (9 if verdict in {Verdict.TIMED_OUT, Verdict.OOM_KILLED} else None),
            started_at=ending.started_at,
            wall_time_s=round(ending.wall_time_s, 3),
            usage=_usage(ending, check),
            stdout_tail=shown(out.tail),
            stderr_tail=shown(err.tail),
            stdout_bytes=out.total_bytes,
            stderr_bytes=err.total_bytes,
            truncated=bool(out.dropped_bytes or err.dropped_bytes),
            tree=place.tree,
            clean_room=place.clean_room,
            cached=False,
            image_digest=self.guest.image_digest,
            runtime=self.guest.runtime,
            report=read_report(place.report),
        )


def _tee(name: str, spool: Spool, follower: Follower | None) -> Callable[[bytes], None]:
    if follower is None:
        return spool.write

    def write(chunk: bytes) -> None:
        spool.write(chunk)
        follower.tell(name, chunk)

    return write


def _usage(ending: Ending, check: Check) -> Usage:
    counters = ending.counters
    return Usage(
        cpu_time_s=counters.cpu_time_s,
        memory_peak_bytes=counters.memory_peak_bytes,
        pids_peak=counters.pids_peak,
        oom_kills=counters.oom_kills,
        disk_written_bytes=counters.disk_written_bytes,
        leftover_processes=ending.leftover_processes,
        limits=check.limits,
    )
