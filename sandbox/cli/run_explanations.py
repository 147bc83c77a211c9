"""Explain to users what ended a check and what to do about it. Pure: a run in, lines out.

Facts come from the kernel, the engine and our own counters. Only the notes that begin with "its output says" come from
what the guest printed, which may be anything: they are hints and never decide a verdict.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from sandbox.byte_sizes import format_bytes
from sandbox.checks.cause import EXIT_STATUS_ONLY, describe_cpu, find_empty_pass
from sandbox.models import CauseKind, CheckRun, Verdict
from sandbox.models.runs import GUEST_ENDED, LaunchPhase, PhaseRun
from sandbox.text import one_line

_SHELL = 128  # a shell reports a program that a signal ended as 128 and its number: POSIX, XCU 2.8.2
_SIGNALS = {
    "SIGABRT": "it aborted itself, for example after a failed assertion",
    "SIGBUS": "it used mapped memory without a page behind it, for example of a file on a full /tmp or /dev/shm",
    "SIGFPE": "an arithmetic error, for example a division by zero",
    "SIGHUP": "sent by one of its own processes",
    "SIGILL": "an instruction that this CPU does not have, or a trap that the compiler inserted",
    "SIGINT": "sent by one of its own processes",
    "SIGKILL": "sent by one of its own processes",
    "SIGPIPE": "it wrote to a program that had ended",
    "SIGSEGV": "it used memory that is not its own",
    "SIGSYS": "a system call that guests may not make; docs/hardening.md lists them",
    "SIGTERM": "sent by one of its own processes",
    "SIGTRAP": "a debugger breakpoint, or a failed assertion",
    "SIGXCPU": "it set itself a limit of CPU time",
}
_LONG_WAIT_S = 1.0
_LARGE_SHARE = 0.25  # of the time the run took
_ALMOST_ALL = 0.8
_SHELLS = {
    126: "the shell reports that a file cannot be executed",
    127: "the shell reports that a command was not found: it may be missing in the profile's image",
}


def explain(run: CheckRun) -> tuple[str, ...]:
    """One line for what ended the run, unless it passed; then one line for each limit it reached and each remark."""
    return (*_ENDINGS[run.verdict](run), *_explain_cause(run), *_explain_pressure(run), *_explain_limits(run))


def likely_cause(run: CheckRun) -> str:
    """The likely cause of a failure if it is not the code; shown beside the verdict. Empty: the code, or unknown."""
    if run.cause is None or run.verdict is not Verdict.FAILED:
        return ""
    kinds = {CauseKind.ENVIRONMENT: "environment", CauseKind.GUEST_INFRASTRUCTURE: "a limit of the guest"}
    return kinds.get(run.cause.kind, "")


def _explain_cause(run: CheckRun) -> Iterator[str]:
    """The cause of a failure. Other verdicts have their line already."""
    if run.verdict is Verdict.FAILED and run.cause is not None and run.cause.sentence != EXIT_STATUS_ONLY:
        yield f"cause: {run.cause.kind}: {one_line(run.cause.sentence)}"


def _explain_passed(run: CheckRun) -> Iterator[str]:
    if remark := find_empty_pass(run):
        yield f"warning: {remark}"
    for service in run.services:
        if service.ended_early:
            yield f"the service {service.name} ended before the check: this pass does not verify a tree"


def _explain_failed(run: CheckRun) -> Iterator[str]:
    last = run.phases[-1] if run.phases else None
    if last is not None and (last.phase is LaunchPhase.PROBE or last.exit_code is None):
        return  # the line of the phase says it all: the application did not end by itself
    if run.signal is not None:
        yield f"ended by {_format_signal(run.signal)}: {_explain_signal(run, run.signal)}"
    elif run.exit_code is None:
        yield "could not be started: its command does not exist or cannot be executed"
    elif run.exit_code in _SHELLS:
        yield f"exit code {run.exit_code}: {_SHELLS[run.exit_code]}"
    elif (name := _signal_name(run.exit_code - _SHELL)) is not None:
        number = run.exit_code - _SHELL
        yield f"exit code {run.exit_code}: a program it ran was ended by {name}: {_explain_signal(run, number)}"
    else:
        yield f"it ended with exit code {run.exit_code}"


def _explain_timed_out(run: CheckRun) -> Iterator[str]:
    deadline = _name_deadline(run.phases[-1]) if run.phases else "timeout_s of the check (profile or config.toml)"
    yield f"stopped at its deadline after {run.wall_time_s:.1f} s: {deadline}"
    if said := describe_cpu(run).removeprefix("; "):
        yield said


def _name_deadline(phase: PhaseRun) -> str:
    """Where the deadline that a launch reached is set."""
    if phase.why == GUEST_ENDED:
        return "the sum of all deadlines of [launch] and of a margin (profile)"
    table = f"the probe {phase.name!a}" if phase.phase is LaunchPhase.PROBE else f"[launch.{phase.phase.value}]"
    return f"deadline_s of {table} (profile)"


def _explain_oom_killed(run: CheckRun) -> Iterator[str]:
    usage = run.usage
    peak = f"its peak was {format_bytes(usage.memory_peak_bytes)}, " if usage.memory_peak_bytes is not None else ""
    limit = format_bytes(usage.limits.memory_bytes)
    yield f"the kernel killed it at its memory limit: {peak}the limit is {limit} (limits.memory_bytes)"
    yield "files in /tmp, its home and /dev/shm count as memory; fewer parallel jobs (make -j) need less memory"


def _explain_killed(run: CheckRun) -> Iterator[str]:
    if run.usage.host_out_of_memory:
        yield "the kernel killed it for lack of memory, below its own limit: all guests of this host together had none"
        yield "left (all_memory_bytes in policies/container.toml, docs/configuration.md); run it again when fewer run"
    elif run.exit_code is not None:
        yield "stopped on request: by `check stop`, `task close`, or because its command was interrupted or cancelled"
    elif run.wall_time_s:
        yield "its guest ended without a report: the container or the engine was stopped, or gVisor reached a limit"
    else:
        yield "stopped on request before it started"


def _explain_output_limit(run: CheckRun) -> Iterator[str]:
    limit = format_bytes(run.usage.limits.output_total_bytes)
    yield f"it printed more than {limit}, stdout and stderr together (limits.output_total_bytes)"


def _explain_disk_limit(run: CheckRun) -> Iterator[str]:
    usage = run.usage
    limits = usage.limits
    if (usage.disk_used_bytes or 0) > limits.disk_bytes:
        limit = format_bytes(limits.disk_bytes)
        used = format_bytes(usage.disk_used_bytes)
        yield f"stopped at its disk limit: at least {used} of {limit} (limits.disk_bytes)"
    elif (usage.disk_used_files or 0) > limits.disk_files:
        yield f"stopped at its disk limit: more than {limits.disk_files:,} files (limits.disk_files)"
    else:
        yield "stopped because the host's disk is almost full: see disk.min_free_bytes in docs/configuration.md"
    if not run.clean_room:
        yield "the files it wrote are still in the task; until they are removed, its checks are stopped again:"
        yield f"`sandbox task clean {run.task_id or 'TASK'}` removes all files that a commit would not contain"


_ENDINGS = {
    Verdict.PASSED: _explain_passed,
    Verdict.FAILED: _explain_failed,
    Verdict.TIMED_OUT: _explain_timed_out,
    Verdict.OOM_KILLED: _explain_oom_killed,
    Verdict.KILLED: _explain_killed,
    Verdict.OUTPUT_LIMIT: _explain_output_limit,
    Verdict.DISK_LIMIT: _explain_disk_limit,
}


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _format_signal(number: int) -> str:
    name = _signal_name(number)
    return f"signal {number} ({name})" if name else f"signal {number}"


def _explain_signal(run: CheckRun, number: int) -> str:
    name = _signal_name(number) or ""
    if name == "SIGXFSZ":
        return f"a file grew past {format_bytes(run.usage.limits.file_bytes)} (limits.file_bytes)"
    if name == "SIGKILL" and run.usage.oom_kills is None:
        return "sent by one of its own processes, or by the kernel for lack of memory, which this host does not count"
    return _SIGNALS.get(name, "sent by one of its own processes")


def _explain_limits(run: CheckRun) -> Iterator[str]:
    usage = run.usage
    limits = usage.limits
    if usage.forks_refused:
        times = "once" if usage.forks_refused == 1 else f"{usage.forks_refused:,} times"
        which = "limits.pids, or all_pids of all guests" if usage.own_pids_limit is False else "limits.pids"
        yield f"it may have {limits.pids:,} processes and threads: starting another one failed {times} ({which})"
    elif usage.forks_refused is None and usage.pids_peak is not None and usage.pids_peak >= limits.pids:
        yield f"it reached its limit of {limits.pids:,} processes and threads (limits.pids)"
    used = usage.disk_used_bytes or 0, usage.disk_used_files or 0
    if run.verdict is not Verdict.DISK_LIMIT and (used[0] > limits.disk_bytes or used[1] > limits.disk_files):
        size = format_bytes(used[0])
        yield f"its files take {size} in {used[1]:,} files, more than its limit: longer checks are stopped"
    if usage.leftover_processes:
        processes = "1 process was" if usage.leftover_processes == 1 else f"{usage.leftover_processes} processes were"
        yield f"{processes} still running when it ended, and killed"
    for stream, total in (("stdout", run.stdout_bytes), ("stderr", run.stderr_bytes)):
        if total > limits.output_bytes:
            dropped = format_bytes(total - limits.output_bytes)
            size = format_bytes(total)
            yield f"{stream}: {size}, of which {dropped} in the middle were dropped (limits.output_bytes)"
    if run.verdict is Verdict.FAILED and not likely_cause(run):
        yield from _output_hints(run)


def _explain_pressure(run: CheckRun) -> Iterator[str]:
    """Whether a run that failed or reached its deadline had to wait for long. A guest that got the CPUs of its limit
    waits only for itself.
    """
    pressure, usage = run.usage.pressure, run.usage
    if run.verdict not in {Verdict.FAILED, Verdict.TIMED_OUT}:
        return
    if pressure is not None:
        sums = {"memory": pressure.memory_s, "I/O": pressure.io_s}
        sums = sums if _had_its_cpus(run) else {"CPU": pressure.cpu_s, **sums}
        waits = [f"{seconds:.1f} s for {what}" for what, seconds in sums.items() if _is_long(seconds, run)]
        whole = "it was slowed down" if pressure.of == "guest" else "the host was busy"
        if waits:
            yield f"{whole}: in {run.wall_time_s:.1f} s its tasks waited {', '.join(waits)}"
    if run.verdict is Verdict.TIMED_OUT and _is_long(usage.cpu_throttled_s, run):
        yield f"its limit on CPUs held it back for {usage.cpu_throttled_s:.1f} s, summed over CPUs (limits.cpus)"


def _had_its_cpus(run: CheckRun) -> bool:
    used = run.usage.cpu_time_s
    return used is not None and used >= _ALMOST_ALL * run.usage.limits.cpus * run.wall_time_s


def _is_long(seconds: float | None, run: CheckRun) -> bool:
    return seconds is not None and seconds >= max(_LONG_WAIT_S, _LARGE_SHARE * run.wall_time_s)


def _output_hints(run: CheckRun) -> Iterator[str]:
    limits = run.usage.limits
    hints = {
        "No space left on device": f"it may write {format_bytes(limits.tmp_bytes)} to /tmp (limits.tmp_bytes) and "
        f"{format_bytes(limits.home_bytes)} to its home directory (limits.home_bytes)",
        "Too many open files": f"each process may have {limits.open_files:,} open files (limits.open_files)",
        "Read-only file system": "a check may write to /tmp, its home directory, /report and its worktree, unless "
        "that is read-only for it",
        "Temporary failure in name resolution": "a check has no network",
        "Network is unreachable": "a check has no network",
    }
    for said, hint in hints.items():
        if said in run.stdout_tail or said in run.stderr_tail:
            yield f'its output says "{said}": {hint}'
