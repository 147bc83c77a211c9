"""The daemon's main process: it forks a process for each command, and keeps the one that serves HTTP alive.

It has one thread and no other work, because a process with threads cannot be forked safely. What it imports is
shared with all its forks. On SIGHUP it replaces itself by the program as it is installed now, and hands over its
sockets and its lock: no client is refused meanwhile, and what runs goes on, as it runs in processes of its own. If
there is no such program, it goes on as it is.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn

from sandbox.command_client import SOCKET
from sandbox.daemon.command_process import serve_command
from sandbox.daemon.command_requests import Program
from sandbox.daemon.parent_death import end_with_parent
from sandbox.daemon.peers import identify_peer, is_same_user
from sandbox.daemon.place import (
    API_SOCKET,
    DaemonRecord,
    LockedHome,
    hand_over,
    open_socket,
    remove_sockets,
    write_record,
)
from sandbox.daemon.systemd import notify
from sandbox.lazy_dataclass import dataclass
from sandbox.version import __version__

MAX_COMMANDS = 256
"""Commands at the same time; further clients run theirs by themselves."""

_END_S = 20.0
_RESTART_S, _LONGEST_RESTART_S = 1.0, 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What the command line gives the daemon. `open_http`: opens the TCP listener, if one is asked for.

    `serve_http`: serves at these listeners (unix, TCP) until a signal; runs in a process of its own.
    """

    program: Program
    run_command: Callable[[], int]
    open_http: Callable[[], socket.socket | None]
    serve_http: Callable[[socket.socket, socket.socket | None], int]
    url: Callable[[socket.socket | None], str]


class Daemon:
    """One daemon on one home."""

    def __init__(self, home: LockedHome, parts: Parts) -> None:
        """Raises: `invalid_input` if a socket cannot be opened."""
        self._parts, self._home, self._lock = parts, home.path, home.lock
        inherited = home.inherited
        self._commands = inherited.sockets.get(SOCKET) or open_socket(home.path, SOCKET)
        self._api = inherited.sockets.get(API_SOCKET) or open_socket(home.path, API_SOCKET)
        self._http = inherited.sockets.get("") or parts.open_http()
        self._activated = inherited.activated
        self._children: set[int] = set()
        self._server = 0
        self._server_due, self._pause_s = 0.0, _RESTART_S
        self._restart_due, self._restart_pause_s = 0.0, _RESTART_S
        self._signals: set[int] = set()
        self._wakeup, self._wakes = socket.socketpair()

    @property
    def url(self) -> str:
        """Where it serves over TCP; '' if it does not."""
        return self._parts.url(self._http)

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `--stop`."""
        write_record(
            self._lock, DaemonRecord(pid=os.getpid(), version=__version__, started_at=datetime.now(UTC), url=self.url)
        )
        self._catch_signals()
        self._commands.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._commands, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            notify("READY=1")
            while not self._is_ending():
                self._keep_server()
                ready = selector.select(timeout=1.0)
                self._drain_wakeups()
                if any(key.fileobj is self._commands for key, _ in ready):
                    self._accept()
                self._reap()
                if signal.SIGHUP in self._signals:
                    self._restart()
        self._end()

    def _catch_signals(self) -> None:
        self._wakeup.setblocking(False)
        self._wakes.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: self._signals.add(number))
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def _is_ending(self) -> bool:
        return signal.SIGTERM in self._signals or signal.SIGINT in self._signals

    def _drain_wakeups(self) -> None:
        with suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def _accept(self) -> None:
        try:
            connection, _ = self._commands.accept()
        except OSError:
            return
        with connection:
            peer = identify_peer(connection)
            if len(self._children) >= MAX_COMMANDS or not is_same_user(peer):
                return
            daemon = os.getpid()
            try:
                pid = os.fork()
            except OSError:  # no room for a process: the client runs its command by itself
                return
            if pid:
                self._children.add(pid)
                return
            self._leave_parent(self._api, self._http)
            connection.setblocking(True)
            serve_command(connection, peer, self._parts.program, self._parts.run_command, daemon)

    def _leave_parent(self, *unused: socket.socket | None) -> None:
        """In a fork: give up what only the daemon may hold, and what this fork does not use."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._lock)
        for one in (self._wakeup, self._wakes, self._commands, *unused):
            if one is not None:
                one.close()

    def _keep_server(self) -> None:
        """Start the process that serves HTTP, again if it ended by itself."""
        if self._server or time.monotonic() < self._server_due:
            return
        self._server_due = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_RESTART_S)
        daemon = os.getpid()
        try:
            self._server = os.fork()
        except OSError:
            return  # tried again when it is due
        if not self._server:
            self._leave_parent()
            end_with_parent(daemon, signal.SIGUSR1)  # as at an upgrade: it accepts no more, and its checks go on
            self._serve_http()

    def _serve_http(self) -> NoReturn:
        code = 1
        try:
            code = self._parts.serve_http(self._api, self._http)
        except BaseException:  # noqa: BLE001 - the edge of a process: the log gets the trace
            _log.exception("the HTTP server of the daemon failed")
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._children.discard(pid)
                if pid == self._server:
                    self._server = 0

    def _restart(self) -> None:
        """Replace this program. The old HTTP server accepts no more requests and ends when its last check has ended.

        If the new program cannot be started, this one goes on, and tries again after a pause.
        """
        if time.monotonic() < self._restart_due:
            return
        self._restart_due = time.monotonic() + self._restart_pause_s
        self._restart_pause_s = min(2 * self._restart_pause_s, _LONGEST_RESTART_S)
        try:
            if not os.access(sys.executable, os.X_OK):  # the usual fault, noticed before the HTTP server is drained
                raise PermissionError(f"{sys.executable} is not an executable file")
            self._execute()
        except OSError as error:
            _log.error(
                "the newer program cannot be started, the daemon goes on with %s and tries again: %s",
                __version__,
                error,
            )

    def _execute(self) -> None:
        """Raises: OSError: it was not possible; only the process that serves HTTP is a new one."""
        self._drain_server()
        signal.set_wakeup_fd(-1)  # its number may soon be that of the lock's file
        previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new program has its handlers
        sockets = {SOCKET: self._commands, API_SOCKET: self._api, "": self._http}
        descriptors = {one.fileno(): name in self._activated for name, one in sockets.items() if one is not None}
        descriptors[self._lock] = False
        try:
            with hand_over(descriptors, os.environ):
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
        finally:
            signal.signal(signal.SIGHUP, previous)
            signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)

    def _drain_server(self) -> None:
        """The process that serves HTTP ends when it has finished; another one may be started meanwhile."""
        if self._server:
            with suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGUSR1)
            self._children.add(self._server)
            self._server, self._server_due = 0, 0.0

    def _end(self) -> None:
        notify("STOPPING=1")
        remove_sockets(self._home, self._activated)
        self._commands.close()
        if self._server:
            self._end_server()
        os.close(self._lock)

    def _end_server(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._server, signal.SIGTERM)
        until = time.monotonic() + _END_S
        while self._server and time.monotonic() < until:
            time.sleep(0.02)
            self._reap()
        if self._server:
            os.kill(self._server, signal.SIGKILL)
