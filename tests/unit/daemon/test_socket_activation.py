"""A service manager that listens for the daemon: its sockets outlive the daemon and its upgrades, ours do not."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devtools.ready_daemon import find_daemon
from devtools.waiting import wait_until
from sandbox.command_client import SOCKET
from sandbox.daemon.place import API_SOCKET

ROOT = Path(__file__).parents[3]
NAMES = (SOCKET, API_SOCKET)
DEADLINE_S = 60

PROGRAM = """
import os, signal, sys
from pathlib import Path
from sandbox.daemon.command_requests import Program
from sandbox.daemon.main_process import Daemon, Parts
from sandbox.daemon.place import begin


def serve_http(_api, _http):
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    while True:
        signal.pause()


program = Program("elsewhere", {}, frozenset(), "utf-8", {})
parts = Parts(program, lambda: 0, lambda: None, serve_http, lambda _http: "")
Daemon(begin(Path(sys.argv[1]), os.environ), parts).run()
"""
ACTIVATE = """
import fcntl, os, sys
count, *command = sys.argv[1:]
copies = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 20) for fd in count.split(",")]
for place, fd in enumerate(copies, 3):
    os.dup2(fd, place)
    os.close(fd)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(copies)), "LISTEN_FDNAMES": "s.socket:s.socket"}
os.execv(command[0], command)
"""


def is_answered(home: Path, name: str = SOCKET) -> bool:
    """A malformed request is answered by a fork that hangs up."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE_S)
        try:
            client.connect(str(home / "serve" / name))
        except OSError:
            return False
        client.sendall(b"\0\0\0\1x")
        return client.recv(1) == b""


@contextmanager
def served(home: Path, listeners: list[socket.socket]) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that a service manager with these sockets starts."""
    command = [sys.executable, "-c", PROGRAM, str(home)]
    fds = [one.fileno() for one in listeners]
    if fds:
        command = [sys.executable, "-c", ACTIVATE, ",".join(map(str, fds)), *command]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=fds) as process:
        try:
            wait_until(lambda: (found := find_daemon(home)) is not None and found.pid == process.pid)
            yield process
        finally:
            process.kill()


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[list[socket.socket]]:
    """As the socket unit of `sandbox serve --unit socket` makes them."""
    (tmp_path / "serve").mkdir(mode=0o700)
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in NAMES]
        for one, name in zip(made, NAMES, strict=True):
            one.bind(str(tmp_path / "serve" / name))
            one.listen()
        yield made


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def test_sockets_of_a_service_manager_outlive_an_upgrade_and_the_end(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    """The next command then starts the daemon again, as `systemctl` promises."""
    for _ in range(2):
        with served(tmp_path, listeners) as process:
            assert is_answered(tmp_path)
            before = find_daemon(tmp_path)
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: find_daemon(tmp_path) not in {None, before})  # noqa: B023 - called in this round
            assert is_answered(tmp_path)
            stop(process)
        for name in NAMES:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "serve" / name))  # the manager listens, and accepts nobody


def test_clients_see_the_daemon_behind_a_socket_that_a_service_manager_made(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    """They hand their environment to their own user alone, and systemd listens as root for a user's system unit."""
    with served(tmp_path, listeners) as process, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "serve" / SOCKET))
        pid, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert (pid, uid) == (process.pid, os.geteuid())


def test_sockets_that_the_daemon_made_go_with_it_also_after_an_upgrade(tmp_path: Path) -> None:
    with served(tmp_path, []) as process:
        before = find_daemon(tmp_path)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: find_daemon(tmp_path) not in {None, before})
        assert is_answered(tmp_path)
        stop(process)
    assert os.listdir(tmp_path / "serve") == ["lock"]  # noqa: PTH208 - names only


def test_a_socket_that_the_service_manager_does_not_have_is_the_daemons_own(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    with served(tmp_path, listeners[:1]) as process:
        assert is_answered(tmp_path)
        stop(process)
    assert set(os.listdir(tmp_path / "serve")) == {"lock", SOCKET}  # noqa: PTH208 - names only
