"""Run one check and record the result.

An `Executor` (executors.py) runs a command in a guest and returns facts; the rest of this module does not depend on
how it does that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sandbox.checks.cancellation import any_of
from sandbox.checks.compiler_cache import NO_COMPILER_CACHE, CompilerCacheUse
from sandbox.checks.output import OutputForwarder, OutputListener, Spool
from sandbox.checks.reader_faults import ReaderFaults
from sandbox.engine.cgroups import Counters
from sandbox.engine.container_labels import INSTANCE_LABEL, TENANT_LABEL
from sandbox.engine.container_types import ContainerExit, Neighbours, StopCondition, Streams, never_stop
from sandbox.engine.create_options import GuestAccount, LayerMount, Supervisor
from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import (
    Cause,
    CauseKind,
    Check,
    CheckRun,
    FailedTest,
    Report,
    ServiceRun,
    ServiceSetup,
    Usage,
    Verdict,
)
from sandbox.private_folders import make_private

if TYPE_CHECKING:
    from sandbox.checks import cause, collected, launch_script, line_results, output_results
    from sandbox.checks import declared as declared_packages
    from sandbox.checks import report as reports
    from sandbox.checks.collected import CollectedResults
    from sandbox.files.disk_usage import DiskUse
    from sandbox.models import TestFailure
    from sandbox.models.test_results import ResultSource
    from sandbox.store import result_files, usage_files
else:  # loaded at first use (docs/adr/0080)
    cause = LazyModule("sandbox.checks.cause")
    declared_packages = LazyModule("sandbox.checks.declared")
    collected = LazyModule("sandbox.checks.collected")
    launch_script = LazyModule("sandbox.checks.launch_script")
    line_results = LazyModule("sandbox.checks.line_results")
    output_results = LazyModule("sandbox.checks.output_results")
    reports = LazyModule("sandbox.checks.report")
    result_files = LazyModule("sandbox.store.result_files")
    usage_files = LazyModule("sandbox.store.usage_files")

_log = logging.getLogger(__name__)

_MOST_FAILURES_OF_CAUSE = 500


class Companions(Protocol):
    """What runs beside one check, in its network namespace (service_guests.py)."""

    @property
    def runs(self) -> tuple[ServiceRun, ...]:
        """What ran, once the check has ended."""
        ...

    @property
    def neighbours(self) -> Neighbours:
        """As the check sees them."""
        ...

    def run_beside(self, container_id: str, stop_condition: StopCondition) -> AbstractContextManager[None]:
        """Start all of it, and remove it at the end. Raises: `service_failed`, errors of the engine."""
        ...


COUNTING_TIME_SHARE = 0.02
"""Of a check's wall time: how long its files may be counted at its end."""


class DiskCount(Protocol):
    """Counts the files of one check while it runs (disk_watch.py)."""

    @property
    def used(self) -> DiskUse | None:
        """The last count; None before the first."""
        ...

    def check_at_end(self) -> Verdict | None:
        """Asked once after the guest has ended: DISK_LIMIT if its files exceed the limits."""
        ...

    def count_at_end(self, seconds: float) -> None:
        """Count for the report of the run, for so long at most."""
        ...


@dataclass(frozen=True)
class CheckDirectories:
    """The directories of a check: `workspace`, which contains `tree`, and `report` for its report files. `account`:
    their owner. `companions`: its services, None without any. `launch`: of a check that launches an application.
    `disk`: counts its files; None: they are not counted.
    """

    workspace: Path
    report: Path
    account: GuestAccount
    tree: str
    clean_room: bool
    task_id: str | None
    companions: Companions | None = None
    launch: launch_script.LaunchScript | None = None
    disk: DiskCount | None = None

    def read_disk_used(self) -> int | None:
        """The bytes that its files held at the last count; None if there was none."""
        used = self.disk.used if self.disk is not None else None
        return None if used is None else used.bytes


@dataclass(frozen=True)
class GuestLayer:
    """A layer of dependencies that a guest gets. `env`: variables of its checks, unless a check sets them itself."""

    key: str
    mount: LayerMount
    env: Mapping[str, str]


@dataclass(frozen=True)
class GuestSettings:
    """The settings of a guest: the same for every check of a profile. `without_layers`, `missing_packages`,
    `left_out`: as `GuestSetup`.
    """

    image_digest: str
    runtime: str
    git_mask: Path
    hosts: Path
    instance: str
    cpus: tuple[int, ...]  # that a guest can be bound to; none: it sees all
    supervisor: Supervisor
    layers: tuple[GuestLayer, ...] = ()
    services: tuple[ServiceSetup, ...] = ()  # of all checks of the profile
    cgroup_parent: str = ""  # of all guests of the host
    without_layers: str = ""
    missing_packages: tuple[str, ...] = ()
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tenant: str = ""  # "": none
    compiler_cache: CompilerCacheUse = NO_COMPILER_CACHE

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every guest: the home, and the tenant if there is one."""
        return {INSTANCE_LABEL: self.instance, **({TENANT_LABEL: self.tenant} if self.tenant else {})}


Heartbeat = Callable[[], None]
"""Called about as often as a stop condition, while a check runs: says that its controller is at work."""


class Executor(Protocol):
    """Runs a check's command once, until it ends, its deadline, or a stop condition. No process of it is left."""

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit: ...


def judge(ending: ContainerExit) -> Verdict:
    """Decide the verdict from facts that the guest cannot forge. Pure.

    `stop_verdict` is set by the stop condition that ended the guest: DISK_LIMIT by `check_disk_limit` of its watch,
    OUTPUT_LIMIT by `output_limit_condition`, KILLED by `stop_when_cancelled`.
    """
    if ending.timed_out:
        return Verdict.TIMED_OUT
    if ending.stop_verdict is not None:  # DISK_LIMIT, OUTPUT_LIMIT or KILLED
        return ending.stop_verdict
    if ending.oom_killed:
        return Verdict.KILLED if ending.host_out_of_memory else Verdict.OOM_KILLED
    if ending.report_missing:
        return Verdict.KILLED
    return Verdict.PASSED if ending.exit_code == 0 else Verdict.FAILED


class CountedOutput(Protocol):
    """What a guest prints: one stream, or several."""

    @property
    def total_bytes(self) -> int: ...


def output_limit_condition(limit: int, output: CountedOutput) -> StopCondition:
    """A stop condition that is met when there is more output than `limit` bytes."""
    return lambda: Verdict.OUTPUT_LIMIT if output.total_bytes > limit else None


def with_heartbeat(why_stop: StopCondition, heartbeat: Heartbeat) -> StopCondition:
    """A stop condition that also sends a heartbeat: the loop of an executor calls its stop condition regularly."""

    def beat_and_ask() -> Verdict | None:
        heartbeat()
        return why_stop()

    return beat_and_ask


def _count_at_end(ending: ContainerExit, disk: DiskCount | None) -> ContainerExit:
    """Count a check's files after its end: it may have filled its disk and ended before the stop condition was asked
    again. The last sample has what they hold then.
    """
    if disk is None:
        return ending
    if not ending.timed_out and ending.stop_verdict is None and disk.check_at_end() is Verdict.DISK_LIMIT:
        ending = replace(ending, stop_verdict=Verdict.DISK_LIMIT)
    if ending.stop_verdict is not Verdict.DISK_LIMIT:  # there the count that stopped it stands
        disk.count_at_end(ending.wall_time_s * COUNTING_TIME_SHARE)
    if disk.used is None or not ending.samples:
        return ending
    last = ending.samples[-1].model_copy(update={"disk_used_bytes": disk.used.bytes})
    return replace(ending, samples=(*ending.samples[:-1], last))


def exit_before_start(reason: Verdict) -> ContainerExit:
    """The result of a check that was stopped before its guest was started."""
    return ContainerExit(None, False, False, datetime.now(UTC), 0.0, Counters(), stop_verdict=reason)


@dataclass(frozen=True)
class _Outputs:
    """The recorded output of a check. `launch`: of one that launches an application; its probes print, too."""

    stdout: Spool
    stderr: Spool
    launch: CountedOutput | None = None

    @property
    def total_bytes(self) -> int:
        return self.stdout.total_bytes + self.stderr.total_bytes + (self.launch.total_bytes if self.launch else 0)


@dataclass(frozen=True)
class _Reported:
    """What a check reported. `report`: the sum of its tests, None without any. `note`: what was not read, '' if all
    was. `lost`: as `CheckRun.results_lost`. `failed`: more of the tests that failed than a report has, for the cause.
    """

    report: Report | None = None
    note: str = ""
    lost: bool = False
    failed: tuple[TestFailure, ...] = ()


@dataclass(frozen=True)
class Recorder:
    """Runs checks through an executor and stores their logs under `logs`."""

    executor: Executor
    guest: GuestSettings
    logs: Path

    def run(
        self,
        run_id: str,
        check: Check,
        directories: CheckDirectories,
        listener: OutputListener | None = None,
        stop_condition: StopCondition = never_stop,
    ) -> CheckRun:
        """Run one check, at most once. Raises only for failures on our side."""
        make_private(self.logs)
        limit = check.limits.output_bytes
        with ExitStack() as stack:
            out = stack.enter_context(Spool(self.logs / f"{run_id}.stdout", limit))
            err = stack.enter_context(Spool(self.logs / f"{run_id}.stderr", limit))
            follower = stack.enter_context(OutputForwarder(listener)) if listener else None
            streams = Streams(_tee("stdout", out, follower), _tee("stderr", err, follower))
            if check.launch is not None:
                kept = self.logs / run_id
                directories = replace(directories, launch=launch_script.build_launch(check, directories.report, kept))
            outputs = _Outputs(out, err, directories.launch)
            flooded = output_limit_condition(check.limits.output_total_bytes, outputs)
            reason = stop_condition()
            try:
                ending = (
                    self.executor.execute(run_id, check, directories, streams, any_of(stop_condition, flooded))
                    if reason is None
                    else exit_before_start(reason)
                )
            except SandboxError:
                if not out.total_bytes and not err.total_bytes:  # it did not start
                    self.forget_log(run_id)
                raise
            if directories.launch is not None:
                ending = directories.launch.judge(ending)
        return self._record(run_id, check, directories, _count_at_end(ending, directories.disk), outputs)

    def forget_log(self, run_id: str) -> None:
        """Remove the log of a run that gets no record: without one it is that of a run that goes on, or was killed."""
        for stream in ("stdout", "stderr"):
            (self.logs / f"{run_id}.{stream}").unlink(missing_ok=True)

    def _record(
        self, run_id: str, check: Check, directories: CheckDirectories, ending: ContainerExit, outputs: _Outputs
    ) -> CheckRun:
        out, err = outputs.stdout, outputs.stderr
        verdict = judge(ending)
        if verdict in {Verdict.PASSED, Verdict.FAILED}:  # it may have ended before the limit was checked
            verdict = output_limit_condition(check.limits.output_total_bytes, outputs)() or verdict
        faults, reported = ReaderFaults(run_id), _Reported(lost=True)  # which a fault does not replace
        with faults.note_errors("its report"):
            reported = self._read_results(
                run_id,
                check,
                directories,
                passed=verdict is Verdict.PASSED,
                dropped=bool(out.dropped_bytes or err.dropped_bytes),
            )
            faults.add(reported.note)
        self._save_usage(run_id, check, ending)
        run = CheckRun(
            run_id=run_id,
            check_id=check.id,
            arguments=check.arguments,
            task_id=directories.task_id,
            verdict=verdict,
            exit_code=ending.exit_code,
            signal=ending.signal or (9 if verdict in {Verdict.TIMED_OUT, Verdict.OOM_KILLED} else None),
            started_at=ending.started_at,
            wall_time_s=round(ending.wall_time_s, 3),
            timeout_s=check.timeout_s,
            usage=_usage(ending, check, directories.disk),
            stdout_tail=out.tail_text,
            stderr_tail=err.tail_text,
            stdout_bytes=out.total_bytes,
            stderr_bytes=err.total_bytes,
            stdout_shown_from_byte=out.tail_from_byte,
            stderr_shown_from_byte=err.tail_from_byte,
            truncated=any((out.tail_from_byte, err.tail_from_byte, out.dropped_bytes, err.dropped_bytes)),
            tree=directories.tree,
            clean_room=directories.clean_room,
            guest_user="shared" if directories.account.shared else "own",
            cached=False,
            image_digest=self.guest.image_digest,
            runtime=self.guest.runtime,
            layers=tuple(layer.key for layer in self.guest.layers),
            compiler_cache=self.guest.compiler_cache.word,
            services=directories.companions.runs if directories.companions else (),
            tenant=self.guest.tenant or None,
            report=reported.report,
            results_lost=reported.lost,
            failures=list_failures(reported.report),
            phases=tuple(directories.launch.phases) if directories.launch else (),
            missing_packages=self.guest.missing_packages,
            shuffle_seed=check.shuffle_seed,
        )
        return self._explain(check, run, directories.workspace, faults, reported.failed)

    def _explain(
        self, check: Check, run: CheckRun, workspace: Path, faults: ReaderFaults, failed: tuple[TestFailure, ...]
    ) -> CheckRun:
        """The run with its cause, and with notes about what of it could not be read."""
        found: Cause | None = Cause(kind=CauseKind.UNKNOWN, sentence=cause.EXIT_STATUS_ONLY)
        with faults.note_errors("the cause in its output"):
            declared = declared_packages.DeclaredPackages(workspace, self.guest.left_out)
            known = run
            if run.report is not None and len(failed) > len(run.report.failed):
                known = run.model_copy(update={"report": run.report.model_copy(update={"failed": failed})})
            found = cause.find_cause(check, known, declared, self.guest.without_layers)
        return run.model_copy(update={"cause": found, "notes": faults.notes})

    def _save_usage(self, run_id: str, check: Check, ending: ContainerExit) -> None:
        if ending.samples:
            try:
                usage_files.save_usage(self.logs, run_id, check, ending.samples)
            except OSError as error:
                _log.warning("the usage of %s over time is not kept: %s", run_id, error)

    def _read_results(
        self, run_id: str, check: Check, directories: CheckDirectories, *, passed: bool, dropped: bool
    ) -> _Reported:
        """What the check reported; each test is kept beside the logs."""
        results = collected.CollectedResults()
        report, source = self._read_report(run_id, check, directories, results, failed=not passed)
        if dropped and source in {"output", "lines"}:
            results.cut_off("tests may be missing: the middle of its output was dropped (limits.output_bytes)")
        if report is not None:
            try:
                result_files.save_test_results(
                    self.logs,
                    run_id,
                    source,
                    results.results,
                    complete=results.complete,
                    compared=results.compared,
                )
            except OSError as error:
                _log.warning("the results of the tests of %s are not kept: %s", run_id, error)
        # without a report there is no file of results that could say that they are incomplete
        lost = bool(results.note) or (report is None and not results.complete)
        return _Reported(report, results.note, lost=lost, failed=results.list_failed(_MOST_FAILURES_OF_CAUSE))

    def _read_report(
        self, run_id: str, check: Check, directories: CheckDirectories, results: CollectedResults, *, failed: bool
    ) -> tuple[Report | None, ResultSource]:
        report = reports.read_report(directories.report, check.cwd, results)
        if report is not None or check.results is None:
            return report, "junit" if report is None or report.kind == "tests" else "report"
        streams = [self.logs / f"{run_id}.{stream}" for stream in ("stdout", "stderr")]
        if check.results.output is not None:
            form = check.results.output
            return output_results.read_output(streams, form, check.cwd, results, failed=failed), "output"
        return line_results.read_line_results(streams, check.results, results), "lines"


def list_failures(report: Report | None) -> tuple[FailedTest, ...]:
    """Convert the failed tests of a report to those of a run. Pure."""
    failed = report.failed if report else ()
    return tuple(FailedTest(test=f.name, message=f.message, path=f.path, line=f.line) for f in failed)


def _tee(name: str, spool: Spool, follower: OutputForwarder | None) -> Callable[[bytes], None]:
    if follower is None:
        return spool.write

    def write(chunk: bytes) -> None:
        spool.write(chunk)
        follower.forward(name, chunk)

    return write


def _is_own_limit(counters: Counters) -> bool | None:
    if not counters.forks_refused or counters.pids_were_full_above is None:
        return None
    return not counters.pids_were_full_above


def _usage(ending: ContainerExit, check: Check, disk: DiskCount | None) -> Usage:
    counters, used = ending.counters, disk.used if disk is not None else None
    return Usage(
        cpu_time_s=counters.cpu_time_s,
        memory_peak_bytes=counters.memory_peak_bytes,
        pids_peak=counters.pids_peak,
        oom_kills=counters.oom_kills,
        forks_refused=counters.forks_refused,
        own_pids_limit=_is_own_limit(counters),
        disk_written_bytes=counters.disk_written_bytes,
        disk_used_bytes=used.bytes if used is not None else None,
        disk_used_files=used.files if used is not None else None,
        leftover_processes=ending.leftover_processes,
        memory_left_bytes=ending.memory_left_bytes,
        host_out_of_memory=ending.host_out_of_memory or None,
        cpu_throttled_s=counters.cpu_throttled_s,
        pressure=ending.pressure,
        limits=check.limits,
    )
