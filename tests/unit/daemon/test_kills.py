"""The daemon's main process, killed at each step of its start, its work, its hand-over to a new program (on both sides
of it) and its end: the next one serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_STEPS = 14
"""At least so many: the folder, the lock, both sockets, the server's process, a command's, the new program, its lock,
its server's and command's process, the end of each socket."""

PROGRAM = """
import os, signal, socket, sys, time
from pathlib import Path
from sandbox.daemon.command_requests import Program
from sandbox.daemon.main_process import Daemon, Parts
from sandbox.daemon.place import begin
from devtools.ready_daemon import find_daemon

HOME = Path(sys.argv[1])
STEPS = {
    "os.exec", "os.mkdir", "os.remove", "os.unlink",
    "fcntl.flock", "socket.bind", "os.fork", "os.chmod", "os.kill",
}
PROGRAM = Program("elsewhere", {}, frozenset(), "utf-8", {})


def serve_http(_api, _http):
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    while True:
        signal.pause()


def serve(kill_at, steps=0):
    # `steps`: those of the previous program
    main = os.getpid()

    def count(event, arguments):
        nonlocal steps
        if os.getpid() == main and (event in STEPS or (event == "open" and f"{HOME}/serve" in str(arguments[0]))):
            steps += 1
            if steps == kill_at:
                os.kill(main, signal.SIGKILL)
            if event == "os.exec":
                os.environ["KILL_AT"] = f"{kill_at} {steps}"

    sys.addaudithook(count)
    Daemon(begin(HOME, os.environ), Parts(PROGRAM, lambda: 0, lambda: None, serve_http, lambda _http: "")).run()
    os._exit(0)


def wait_for_daemon(child):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(HOME / "serve/commands.sock"))
                client.settimeout(60)
                client.sendall(b"\\0\\0\\0\\1x")
                return client.recv(1) == b""  # malformed, and answered by a fork that hangs up
        except OSError:
            if has_ended(child):
                return False
            time.sleep(0.005)
    return False


def has_ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for_new_program(child, before):
    until = time.monotonic() + 60
    while time.monotonic() < until and not has_ended(child):
        if find_daemon(HOME) not in {None, before}:
            return True
        time.sleep(0.005)
    return False


def hand_over(child):
    before = find_daemon(HOME)
    os.kill(child, signal.SIGHUP)
    return wait_for_new_program(child, before) and wait_for_daemon(child)


def start(kill_at):
    # the next one after a kill (0) serves and ends, without a hand-over

    child = os.fork()
    if not child:
        serve(kill_at)
    if wait_for_daemon(child) and (not kill_at or hand_over(child)):
        os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_free():
    # a fork that the killed one had just made has its lock until it notices
    until = time.monotonic() + 60
    while find_daemon(HOME) is not None and time.monotonic() < until:
        time.sleep(0.005)
    return find_daemon(HOME) is None


if "KILL_AT" in os.environ:  # the new program
    serve(*map(int, os.environ.pop("KILL_AT").split()))

killed = 0
for step in range(1, 200):
    code = start(step)
    assert is_free(), step
    if code == 0:
        break
    assert code == -signal.SIGKILL, (step, code)
    killed += 1
    assert start(0) == 0, step
    assert sorted(os.listdir(HOME / "serve")) == ["lock"], step
print(killed)
"""


def test_a_daemon_that_is_killed_at_any_step_does_not_stop_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home)], capture_output=True, text=True, check=False, timeout=240, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= _STEPS
