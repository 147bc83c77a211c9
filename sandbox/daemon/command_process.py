"""Run one command of a thin client: a shepherd that watches the client, and the command itself, each a fork.

Theory. The daemon forks the shepherd as soon as a client connects, so a slow or broken client does not delay others.
The shepherd reads the request, decides, and forks the command. It forwards the client's signals, tells it how the
command ended, and ends the command (SIGTERM) when the client is gone. Neither depends on the daemon: a daemon that is
stopped, upgraded or killed takes no command with it. If the shepherd is killed, the command gets SIGTERM from the
kernel.

The command becomes what the client's process is: arguments, environment, directory, umask, limits, niceness, ignored
signals, standard streams. What cannot be taken over (the session and terminal, the control group, the CPU affinity that
was set) is in docs/serve.md; what would weaken the client's confinement is refused (`sandbox.daemon.peers`).
"""

from __future__ import annotations

import atexit
import io
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from sandbox.command_client import FORWARDED, REFUSES, RUNS, STATUS_BYTES
from sandbox.daemon.command_requests import CommandRequest, Program, receive_request
from sandbox.daemon.parent_death import end_with_parent
from sandbox.daemon.peers import PeerProcess, find_difference, read_status
from sandbox.lazy_dataclass import dataclass
from sandbox.store import terminal_task

_ALLOWED = frozenset({*FORWARDED, signal.SIGSTOP, signal.SIGCONT})
_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


@dataclass(frozen=True)
class ProcessState:
    """What a process is beside its arguments and environment, read from `/proc` and the kernel."""

    directory: int
    umask: int
    niceness: int
    session: int
    limits: tuple[tuple[int, tuple[int, int]], ...]
    ignored: frozenset[int]


def serve_command(
    connection: socket.socket, peer: PeerProcess, program: Program, run_command: Callable[[], int], daemon: int
) -> NoReturn:
    """Serve one client in this process, a fork of the daemon, and end."""
    code = 0
    try:
        os.setsid()
        request = receive_request(connection)
        if reason := _find_obstacle(connection, peer, program, request, daemon):
            connection.sendall(REFUSES + reason.encode())
        else:
            state = _read_state(peer.pid)
            connection.sendall(RUNS)
            _shepherd(connection, state, request, run_command)
    except (OSError, ValueError):
        code = 1  # the client runs its command by itself, or is gone
    os._exit(code)


def _find_obstacle(
    connection: socket.socket, peer: PeerProcess, program: Program, request: CommandRequest, daemon: int
) -> str:
    if reason := program.find_mismatch(request) or find_difference(connection, peer):
        return reason
    if program.origin.has_changed():
        if os.getppid() == daemon:  # else it has ended, and our parent is another process
            os.kill(daemon, signal.SIGHUP)  # it starts its new program
        return "this daemon is older than the installation"
    return ""


def _read_state(pid: int) -> ProcessState:
    """Raises: OSError, also when a limit of the process is above ours, which cannot be taken over."""
    status = read_status(pid)
    limits = tuple((which, resource.prlimit(pid, which)) for which in _LIMITS)
    for which, (_, hard) in limits:
        ours = resource.getrlimit(which)[1]
        if ours != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > ours):
            raise PermissionError("a limit of the process is above ours")
    niceness = os.getpriority(os.PRIO_PROCESS, pid)
    if niceness < os.getpriority(os.PRIO_PROCESS, 0):
        raise PermissionError("its priority is above ours")
    bits = int(status["SigIgn"], 16)
    return ProcessState(
        directory=os.open(f"/proc/{pid}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),
        umask=int(status["Umask"], 8),
        niceness=niceness,
        session=os.getsid(pid),
        limits=limits,
        ignored=frozenset(number for number in _ALLOWED if bits >> (number - 1) & 1),
    )


def _shepherd(
    connection: socket.socket, state: ProcessState, request: CommandRequest, run_command: Callable[[], int]
) -> None:
    shepherd = os.getpid()
    child = os.fork()
    if not child:
        connection.close()
        _become(shepherd, state, request, run_command)
    for fd in (*request.streams, state.directory):
        os.close(fd)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _release_streams()
    status = _watch(connection, child)
    with suppress(OSError):
        connection.sendall(status.to_bytes(STATUS_BYTES, "big", signed=True))


def _release_streams() -> None:
    """Hold no stream of the daemon's: its own reader must see the end of them when the daemon ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _watch(connection: socket.socket, child: int) -> int:
    """Forward signals until the command ends. Returns its exit code, or minus the signal that ended it."""
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(connection, select.POLLIN)
    connection.setblocking(False)
    ready = [fd for fd, _ in poll.poll()]
    while pidfd not in ready:
        if ready and not _forward(connection, pidfd):
            poll.unregister(connection)
        ready = [fd for fd, _ in poll.poll()]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _forward(connection: socket.socket, pidfd: int) -> bool:
    """Forward the signals that came. False at the client's end, after which the command gets SIGTERM."""
    try:
        numbers = connection.recv(64)
    except BlockingIOError:
        return True
    except OSError:
        numbers = b""
    for number in numbers or (signal.SIGCONT, signal.SIGTERM):
        if number in _ALLOWED:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
    return bool(numbers)


def _become(shepherd: int, state: ProcessState, request: CommandRequest, run_command: Callable[[], int]) -> NoReturn:
    """Run the command, and end as the interpreter does, but for taking down every module."""
    code = 1
    try:
        end_with_parent(shepherd)
        os.setsid()
        _take_over(state, request)
        with terminal_task.in_session(state.session):
            code = run_command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - the interpreter prints what reaches it
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # as forks of multiprocessing do
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _take_over(state: ProcessState, request: CommandRequest) -> None:
    for source, target in zip(request.streams, (0, 1, 2), strict=True):
        os.dup2(source, target)
    os.fchdir(state.directory)
    os.closerange(3, _first_closed())
    for number in _ALLOWED - {signal.SIGSTOP, signal.SIGCONT}:
        signal.signal(number, signal.SIG_IGN if number in state.ignored else signal.SIG_DFL)
    if signal.SIGINT not in state.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(state.umask)
    for which, limits in state.limits:
        resource.setrlimit(which, limits)
    os.setpriority(os.PRIO_PROCESS, 0, state.niceness)
    os.environ.clear()
    os.environb.update(request.environment)
    time.tzset()
    sys.argv = ["sandbox", *request.arguments]
    sys.stdin, sys.stdout, sys.stderr = (
        _open_stream(number, *encoding) for number, encoding in enumerate(request.encodings)
    )


def _first_closed() -> int:
    return max(map(int, os.listdir("/proc/self/fd"))) + 1  # noqa: PTH208 - names only


def _open_stream(number: int, encoding: str, errors: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it: stderr, and terminals, are written line by line."""
    mode = "r" if number == 0 else "w"
    raw = io.FileIO(number, mode, closefd=False)
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding, errors, line_buffering=number == 2 or raw.isatty())
