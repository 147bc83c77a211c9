"""Checks in a guest with our PID 1: start or reuse the guest, verify it against the request, run one check in it, then
keep it for the next check or remove it.

A guest is kept only if it is certainly clean: PID 1 reported that no other process is left, the kernel killed no
process for lack of memory, and the check was not stopped; and if it holds little memory, which no other guest could
use while it waits. In every other case (no report, an interrupt, an engine error) the container is removed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sandbox.engine.attached_stream import attach
from sandbox.engine.beside import decode_exit
from sandbox.engine.cgroups import CgroupPaths, Counters, find_cgroups, read_held_memory, read_kernel_memory
from sandbox.engine.confinement import require_confinement
from sandbox.engine.container import create_container, kill_container, remove_container, remove_ended_container
from sandbox.engine.container_types import ContainerExit, Streams, SupervisedCheck
from sandbox.engine.dialects import find_dialect
from sandbox.engine.direct_requests import find_object
from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.engine.fallback_tunnels import find_idle_tunnels
from sandbox.engine.guest_group import require_in_group
from sandbox.engine.guest_process import find_guest_pid
from sandbox.engine.kill_origin import KillOrigin
from sandbox.engine.meter import Meter
from sandbox.engine.mounts import require_mounts
from sandbox.engine.ownership import require_writable_folders
from sandbox.engine.pid1_messages import Command, ExitReport
from sandbox.engine.pid1_session import Session, SessionOutcome
from sandbox.engine.posture import list_interfaces, require_posture
from sandbox.engine.pty_limit import limit_ptys
from sandbox.engine.socket_memory import SocketWatch, limit_socket_memory
from sandbox.engine.user_maps import require_no_host_root
from sandbox.errors import ErrorCode, SandboxError
from sandbox.guest_labels import has_selinux
from sandbox.models import Verdict

_log = logging.getLogger(__name__)
_DEATH_S = 10.0
_LOOK_S = 0.05
_PIDS_AT_LEAST = 2  # PID 1 and the check, which may end before the first sample
_SELINUX_HINT = (
    "`sandbox doctor` names in its line `lsm` the paths that SELinux keeps from guests, and what labels them."
)
_USAGE, _ABANDONED = 64, 75  # images/init/init.c: unknown arguments; the controller of a check was silent for a lease


@dataclass(frozen=True)
class _VerifiedGuest:
    """A verified guest with an open session. `groups`: those of this host. `is_first`: no check ran in it before."""

    container_id: str
    groups: CgroupPaths | None
    env: list[str]
    session: Session
    sockets: SocketWatch
    is_first: bool = False


def run_supervised(
    engine: DockerApi, name: str, options: Mapping[str, Any], check: SupervisedCheck, *, keep: bool
) -> ContainerExit:
    """Run one check in the container of this name. It is created unless it exists, is idle and matches the request.

    `keep`: a clean container is kept for the next check, if the engine can (dialects.py); the caller ensures that it
    has no other user. Otherwise it is removed. Raises: `policy_violation` when the created container differs from the
    request, `image_missing`, `internal` when the guest could not be started. Interrupts pass through after removal.
    """
    clean, remove = False, remove_container
    keep = keep and find_dialect(engine).keeps_stdin
    try:
        with ExitStack() as stack:
            guest = (_reuse_guest(engine, name, options, stack) if keep else None) or _create_guest(
                engine, name, options, stack
            )
            with check.surround(guest.container_id):
                ending, clean = _run_check(engine, guest, check)
            remove = remove_ended_container
    finally:
        if not (keep and clean):
            # By name: the name is unique to us, and known even if an interrupt arrives before the engine's answer.
            remove(engine, name)
    return ending


def start_supervised(engine: DockerApi, name: str, options: Mapping[str, Any]) -> None:
    """Start and verify the container of this name, unless it is idle and matches the request. No command runs in it.

    An engine that cannot keep it gets none. Raises: as `run_supervised`.
    """
    if not find_dialect(engine).keeps_stdin:
        return
    is_verified = False
    try:
        with ExitStack() as stack:
            _ = _reuse_guest(engine, name, options, stack) or _create_guest(engine, name, options, stack)
        is_verified = True
    finally:
        if not is_verified:
            remove_container(engine, name)


def _reuse_guest(engine: DockerApi, name: str, options: Mapping[str, Any], stack: ExitStack) -> _VerifiedGuest | None:
    """Reuse the container of this name, or remove it and return None."""
    inspected = _inspect(engine, name)
    if inspected is None:
        return None
    try:
        running = inspected["State"]["Running"]
        wrong = find_dialect(engine).compare(engine, options, inspected) if running else ("it has ended",)
        if not wrong:
            session = stack.enter_context(_open_session(engine, inspected["Id"]))
            return _verify_guest(engine, inspected, session, options)
        _log.info("the container %s is created again: %s", name, ", ".join(wrong))
    except SandboxError as error:
        _log.info("the container %s is created again: %s", name, error.brief)
    remove_container(engine, name)
    return None


def _open_session(engine: DockerApi, container_id: str) -> Session:
    """Open a session with PID 1. Before a report counts as overdue, the engine that carries it has to answer."""
    return Session(attach(engine, container_id), partial(_inspect, engine, container_id))


def _create_guest(engine: DockerApi, name: str, options: Mapping[str, Any], stack: ExitStack) -> _VerifiedGuest:
    container_id = create_container(engine, name, options)["Id"]
    session = stack.enter_context(_open_session(engine, container_id))
    with translate_errors("start the container"):
        engine.api.start(container_id)
    inspected = _inspect(engine, container_id)
    if inspected is None:
        raise SandboxError(ErrorCode.INTERNAL, "Another process removed the guest's container", details=name)
    return replace(_verify_guest(engine, inspected, session, options), is_first=True)


def _verify_guest(
    engine: DockerApi, inspected: Mapping[str, Any], session: Session, options: Mapping[str, Any]
) -> _VerifiedGuest:
    """Raises: `policy_violation` when the guest differs from the request, `engine_unavailable` when it cannot write its
    files or this process cannot see it, `image_missing` for a supervisor of another version, `internal` when its PID 1
    does not answer, or `engine_unavailable` where SELinux may be why.
    """
    posture = session.query_posture()
    if posture is None:
        raise _no_answer_error(engine, inspected)
    dialect = find_dialect(engine)
    pid = 0
    if engine.is_local:
        inspect = partial(_inspect, engine, inspected["Id"])
        pid = find_guest_pid(engine.endpoint.socket_path, float(engine.api.timeout), inspected, inspect)
    idle_tunnels = find_idle_tunnels(list_interfaces(posture), pid)
    require_posture(posture, options, dialect.own_files, idle_tunnels)
    require_writable_folders(posture, options)
    groups, memory_bytes = None, int(options["HostConfig"]["Memory"])
    if engine.is_local:
        groups = find_cgroups(pid)
        require_no_host_root(pid, options)
        require_confinement(pid, inspected)
        require_mounts(pid, options)
        require_in_group(groups, options["HostConfig"]["CgroupParent"])
        limit_socket_memory(groups, memory_bytes)
        limit_ptys(pid)
    env = dialect.remove_own_variables(inspected["Config"]["Env"])
    return _VerifiedGuest(inspected["Id"], groups, env, session, SocketWatch(groups, pid, memory_bytes))


def _no_answer_error(engine: DockerApi, inspected: Mapping[str, Any]) -> SandboxError:
    """Build the error for a silent PID 1, from its exit status."""
    state = _wait_for_final_state(engine, inspected["Id"])
    if state.get("ExitCode") == _USAGE and not state.get("Running"):
        return SandboxError(
            ErrorCode.IMAGE_MISSING,
            "The image 'init' is of another version of the sandbox",
            hint="Build it: sandbox images build init",
        )
    reason = str(state.get("Error") or "")
    if has_selinux():  # files without a label for guests are the most likely cause, and the operator's to mend
        message = "The guest's supervisor does not answer; SELinux may keep it from its files"
        return SandboxError(ErrorCode.ENGINE_UNAVAILABLE, message, details=reason, hint=_SELINUX_HINT)
    return SandboxError(ErrorCode.INTERNAL, "The guest's supervisor does not answer", details=reason)


def _run_check(engine: DockerApi, guest: _VerifiedGuest, check: SupervisedCheck) -> tuple[ContainerExit, bool]:
    """Run the check. Returns how it ended, and whether the guest is clean and may be kept."""
    command = check.build_command(guest.env)
    started_at, started = datetime.now(UTC), time.monotonic()
    with KillOrigin(guest.groups) as origin:
        with Meter(guest.groups, is_first=guest.is_first, disk_used=check.disk_used) as meter:
            outcome = guest.session.run(
                command,
                check.streams,
                check.deadline_s,
                guest.sockets.watch_beside(check.stop_condition, check.neighbours),
                meter.sample,
                check.beside,
            )
        is_host_short = origin.is_host_short()
    wall_time_s = time.monotonic() - started
    counters = meter.counters.merge_max(Counters(memory_peak_bytes=guest.sockets.held_bytes))
    if outcome.report is None:
        ending = _exit_without_report(engine, guest, outcome, counters, started_at, wall_time_s)
        ending = replace(ending, pressure=meter.pressure, samples=meter.samples)
        ending = replace(ending, host_out_of_memory=ending.oom_killed and is_host_short)
        return ending, False
    left_bytes = _read_left_memory(guest.groups)
    ending = _exit_from_report(outcome.report, outcome.stop_verdict, counters, started_at)
    ending = replace(ending, memory_left_bytes=left_bytes, pressure=meter.pressure, samples=meter.samples)
    _explain_failed_start(outcome.report, command, check.streams)
    is_over = not outcome.report.quiescent or ending.counters.oom_kills is None
    if is_over:
        kill_container(
            engine, guest.container_id
        )  # a failed kill raises; a removal that hangs is quarantined without an error
    if ending.counters.oom_kills is None:
        ending = _with_engine_oom_flag(engine, guest, ending)
    ending = replace(ending, host_out_of_memory=ending.oom_killed and is_host_short)
    # A guest that received a kill request may know the nonce and imitate PID 1 (docs/adr/0019, gVisor): do not keep it.
    clean = not is_over and not ending.oom_killed and outcome.stop_verdict is None
    is_small = check.max_left_bytes is None or (left_bytes or 0) <= check.max_left_bytes
    return ending, clean and is_small


def _read_left_memory(groups: CgroupPaths | None) -> int | None:
    """What a guest without processes holds: files in memory, and the kernel's own objects (THREATS S04, S138)."""
    held = read_held_memory(groups) if groups else None
    return held if groups is None or held is None else held + read_kernel_memory(groups)


def _exit_from_report(
    done: ExitReport, stopped: Verdict | None, counters: Counters, started_at: datetime
) -> ContainerExit:
    exit_code, signal = decode_exit(done)
    counters = replace(
        counters,
        cpu_time_s=done.cpu_time_s if counters.cpu_time_s is None else counters.cpu_time_s,
        pids_peak=None if counters.pids_peak is None else max(counters.pids_peak, _PIDS_AT_LEAST),
    )
    return ContainerExit(
        exit_code=exit_code,
        oom_killed=bool(counters.oom_kills),
        timed_out=done.timed_out,
        started_at=started_at,
        wall_time_s=done.wall_time_s,
        counters=counters,
        signal=signal,
        stop_verdict=stopped,
        report_missing=exit_code is None,
        leftover_processes=done.leftovers,
    )


def _explain_failed_start(done: ExitReport, command: Command, streams: Streams) -> None:
    """Write to the check's stderr why the command could not start."""
    if done.start_errno:
        reason = os.strerror(done.start_errno) if done.start_errno > 0 else "for an unknown reason"
        line = f"sandbox: cannot run {command.argv[0]!r} in {command.cwd}: {reason}\n"
        streams.stderr(line.encode("utf-8", "backslashreplace"))


def _exit_without_report(
    engine: DockerApi,
    guest: _VerifiedGuest,
    outcome: SessionOutcome,
    counters: Counters,
    started_at: datetime,
    wall_time_s: float,
) -> ContainerExit:
    """Without a report the guest is killed, and its end is taken from the engine. Raises: `timeout` (`reason`:
    `controller_silent`) if PID 1 ended it because we were silent.
    """
    kill_container(engine, guest.container_id)
    state = _wait_for_final_state(engine, guest.container_id)
    if state.get("ExitCode") == _ABANDONED:
        raise SandboxError(
            ErrorCode.TIMEOUT,
            "The check was ended: this process was silent towards its guest for too long",
            details="This process was stopped or held up, or the engine between them was. The check has no verdict.",
            hint="Run it again. It happens to a process that is stopped with Ctrl-Z for longer than container.idle_s.",
            reason="controller_silent",
        )
    return ContainerExit(
        exit_code=None,
        oom_killed=bool(counters.oom_kills) or bool(state.get("OOMKilled")),
        timed_out=outcome.overdue,
        started_at=started_at,
        wall_time_s=wall_time_s,
        counters=counters,
        stop_verdict=outcome.stop_verdict,
        report_missing=True,
    )


def _wait_for_final_state(engine: DockerApi, container_id: str) -> dict[str, Any]:
    """Return the engine's state of an ended guest. The wait is short: the state gives only the OOM flag and errors."""
    ends_at = time.monotonic() + _DEATH_S
    while True:
        inspected = _inspect(engine, container_id)
        state: dict[str, Any] = inspected["State"] if inspected else {}
        if not state.get("Running") or time.monotonic() > ends_at:
            return state
        time.sleep(_LOOK_S)


def _with_engine_oom_flag(engine: DockerApi, guest: _VerifiedGuest, ending: ContainerExit) -> ContainerExit:
    """Take the OOM flag from the engine, where the kernel's counter cannot be read. Docker 20.10 has it only once the
    container has ended; without that state it counts as set.
    """
    state = _wait_for_final_state(engine, guest.container_id)
    killed = not state or bool(state.get("Running")) or bool(state.get("OOMKilled"))
    return replace(ending, oom_killed=ending.oom_killed or killed)


def _inspect(engine: DockerApi, name: str) -> dict[str, Any] | None:
    """Inspect a container; None when it does not exist."""
    with translate_errors("inspect the container"):
        return find_object(engine, "containers", name)
