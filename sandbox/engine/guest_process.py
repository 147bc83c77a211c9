"""Whether the process that an engine names is the guest's, as this controller sees processes.

An engine numbers processes as its own PID namespace does. A controller in another one (a container without `pid: host`)
sees none under that number, or another process: then no counter, mount table or confinement is the guest's. The kernel
says in /proc/PID/cgroup in which control group a process is, and every engine names the group of a container after its
id, which has 64 digits: `/docker/ID`, `docker-ID.scope`, `libpod-ID.scope/container`. The file keeps the name where
the groups are in another namespace than ours (`/../docker-ID.scope`). THREATS S221, docs/adr/0191.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode, SandboxError

PROCESSES_HINT = (
    "The controller must be in the engine's PID namespace and see its processes: `pid: host` in Docker Compose, "
    "`--pid host` for `docker run`, `hostPID: true` in Kubernetes, no `hidepid` for /proc. Or run it on the host."
)
_ENDING_S, _PAUSE_S = 2.0, 0.05
_CREDENTIALS = struct.Struct("3i")


def is_guest_process(groups: str, container_id: str) -> bool:
    """Whether a process is in the control group of a container; pure. `groups`: its /proc/PID/cgroup."""
    return bool(container_id) and any(container_id in line.rpartition(":")[2] for line in groups.splitlines())


def find_guest_pid(
    socket_path: str,
    timeout_s: float,
    inspected: Mapping[str, Any],
    inspect: Callable[[], Mapping[str, Any] | None],
) -> int:
    """As `prove_guest_pid`, of the engine behind this socket, which may take so long to answer."""
    find_patience = partial(_find_patience, socket_path, timeout_s)
    return prove_guest_pid(inspected, inspect, find_patience=find_patience)


def prove_guest_pid(
    inspected: Mapping[str, Any],
    inspect: Callable[[], Mapping[str, Any] | None],
    proc: Path = Path("/proc"),
    *,
    find_patience: Callable[[], float] = float,
) -> int:
    """The process of a guest, proven to be its own; 0 for one that has ended.

    `inspect`: asks the engine again. `find_patience`: how many seconds an engine may still call a guest running
    of which no process is left. Raises: `engine_unavailable` for a guest that runs where this process cannot see it.
    """
    container_id, pid = str(inspected["Id"]), int(inspected["State"]["Pid"])
    began_at = time.monotonic()
    while not is_guest_process(groups := _read_groups(proc, pid), container_id):
        found = inspect()  # one that has just ended has no process, or none in its group any more
        if found is None or not found["State"]["Running"]:
            return 0
        waited_s = time.monotonic() - began_at
        if waited_s > _ENDING_S and (groups or waited_s > find_patience()):
            raise SandboxError(
                ErrorCode.ENGINE_UNAVAILABLE,
                "The controller does not see the guest's processes, so the guest cannot be verified; it was stopped",
                details=f"Process {pid}, which the engine names, is not in the control group of {container_id} here.",
                hint=PROCESSES_HINT,
            )
        time.sleep(_PAUSE_S)
    return pid


def _find_patience(path: str, timeout_s: float) -> float:
    """For `prove_guest_pid`: the time of the engine behind this socket, whose processes this process sees; 0 where it
    does not, since a guest without a process is then one that cannot be seen.
    """
    try:
        return timeout_s if sees_processes_of(path) else 0.0
    except OSError:
        return 0.0


def sees_processes_of(path: str, proc: Path = Path("/proc")) -> bool:
    """Whether this process sees the one that listens at a unix socket. Raises: OSError without a listener.

    The kernel gives its id as the asking namespace has it, and 0 where that has none (unix(7), `SO_PEERCRED`).
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ENDING_S)
        probe.connect(path)
        pid, _, _ = _CREDENTIALS.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(pid) and (proc / str(pid)).exists()


def _read_groups(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace") if pid else ""
    except OSError:
        return ""
