"""A daemon whose newer program cannot be started goes on: its sockets, its lock, its record and its HTTP server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, signal, socket, sys, time
from pathlib import Path
from sandbox.daemon import main_process
from sandbox.daemon.command_requests import Program
from sandbox.daemon.main_process import Daemon, Parts
from sandbox.daemon.place import begin
from devtools.ready_daemon import find_daemon

HOME, fault = Path(sys.argv[1]), sys.argv[2]
broken = HOME / "python"
if fault == "no-program":
    broken.write_bytes(b"no program of any kind")
    broken.chmod(0o700)
servers = HOME / "servers"
main_process._RESTART_S = main_process._LONGEST_RESTART_S = 0.05


def serve_http(_api, _http):
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    with servers.open("a") as file:
        file.write("x")
    while True:
        signal.pause()


def ask():
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(HOME / "serve/commands.sock"))
        client.sendall(b"\\0\\0\\0\\1x")
        assert client.recv(1) == b""  # malformed, and answered by a fork that hangs up


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, condition
        time.sleep(0.005)


child = os.fork()
if not child:
    before = (set(os.listdir("/proc/self/fd")), dict(os.environ))
    program = Program("elsewhere", {}, frozenset(), "utf-8", {})
    daemon = Daemon(begin(HOME, os.environ), Parts(program, lambda: 0, lambda: None, serve_http, lambda _http: ""))
    real, tries = os.execv, []
    sys.executable = str(broken)

    def count(*arguments):
        tries.append(1)
        return real(*arguments)

    os.execv = count
    daemon.run()
    assert len(tries) >= 1 if fault == "no-program" else not tries, tries
    daemon._wakeup.close(), daemon._wakes.close(), daemon._api.close()
    assert (set(os.listdir("/proc/self/fd")), dict(os.environ)) == before
    os._exit(0)
try:
    wait_for(lambda: find_daemon(HOME) is not None and servers.exists())
    record = find_daemon(HOME)
    for round in range(3):
        os.kill(child, signal.SIGHUP)
        ask()
    if fault == "no-program":
        wait_for(lambda: len(servers.read_text()) > 1)  # the server that was drained has a successor
    ask()
    assert find_daemon(HOME) == record
finally:
    os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 0, code
"""


@pytest.mark.parametrize("fault", ["missing", "no-program"])
def test_a_daemon_without_a_newer_program_goes_on_with_the_old_one(tmp_path: Path, fault: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), fault],
        capture_output=True, text=True, check=False, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the newer program cannot be started, the daemon goes on" in done.stderr
