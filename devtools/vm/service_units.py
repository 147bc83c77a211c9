"""The units that `sandbox serve --unit` prints, under the systemd of a row's machine: those of the system for root, of
the user manager for others. Commands run as in a login: with its groups, and without systemd's variables.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

_PORT = 8765
_WAIT_S = 600.0  # machines without hardware support are ten times slower, and others may be at work on the host
_KEPT = ("HOME", "PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "TMPDIR")
_NAME = "space-sandbox"
_SERVICE, _SOCKET = f"{_NAME}.service", f"{_NAME}.socket"
_MOST_STARTS = 5
_ASK = "import sys; from pathlib import Path; from devtools.daemon import ask; print(ask(Path(sys.argv[1]), 'list'))"


class ServiceUnits:
    """The units of one home, started and stopped. `source`: a repository with the check `sleep`."""

    def __init__(self, home: Path, source: Path) -> None:
        self._home, self._source, self._is_root = home, source, os.geteuid() == 0
        self._scope = [] if self._is_root else ["--user"]
        self.seen: list[str] = []

    def measure(self) -> None:
        """All steps. Raises: RuntimeError for a command that fails, and for what is not as it must be."""
        self._install()
        try:
            self._start_by_command()
            self._ask_http()
            self._kill_while_a_check_runs()
            self._stop()
            self._start_with_a_mistake()
        finally:
            self._systemctl("stop", _SOCKET, _SERVICE)

    def _install(self) -> None:
        # An engine that a socket starts for each request, as rootless Podman, may need a minute for one here.
        (self._home / "config.toml").write_text(f"[engine]\ntimeout_s = {_WAIT_S / 2}\n")
        folder = Path("/run/systemd/system" if self._is_root else f"{os.environ['XDG_RUNTIME_DIR']}/systemd/user")
        folder.mkdir(parents=True, exist_ok=True)
        kind = "system" if self._is_root else "user"
        service = self._sandbox("serve", "--unit", kind, "--http", f"127.0.0.1:{_PORT}")
        (folder / _SERVICE).write_text(service)
        (folder / _SOCKET).write_text(self._sandbox("serve", "--unit", "socket"))
        verify = ["systemd-analyze", *self._scope, "verify", str(folder / _SERVICE), str(folder / _SOCKET)]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
        _require((done.returncode, done.stderr) == (0, ""), f"systemd-analyze verify: {done.stderr}")
        self._systemctl("daemon-reload")
        self.seen.append(f"systemd {self._systemctl('--version').split('(')[1].split(')')[0]}")

    def _start_by_command(self) -> None:
        self._systemctl("start", _SOCKET)
        _require(self._show("ActiveState") == "inactive", "it was started before a command")
        started = time.monotonic()
        self._sandbox("list")
        self._wait("active", lambda: self._show("ActiveState") == "active")
        self.seen.append(f"started by a command in {time.monotonic() - started:.0f} s")
        answer = self._run([sys.executable, "-I", "-c", _ASK, str(self._home)])
        _require(answer.strip() == "b'R'", f"the daemon answers a command with {answer}")
        self.seen.append(f"runs commands, memory {int(self._show('MemoryCurrent')) / 1024**2:.0f} MiB")

    def _ask_http(self) -> None:
        answers = {path: self._get(path) for path in ("/healthz", "/api/v1/openapi.json")}
        _require(answers == {"/healthz": 200, "/api/v1/openapi.json": 401}, f"HTTP: {answers}")
        token = (self._home / "mcp-token").read_text().strip()
        _require(self._get("/api/v1/openapi.json", token) == 200, "HTTP with the token")
        self.seen.append("HTTP asks for the token")

    @staticmethod
    def _get(path: str, token: str = "") -> int:
        connection = HTTPConnection("127.0.0.1", _PORT, timeout=_WAIT_S)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        status = connection.getresponse().status
        connection.close()
        return status

    def _kill_while_a_check_runs(self) -> None:
        self._sandbox("repo", "clone", str(self._source))
        task = self._sandbox("task", "create", str(self._source), "--json").partition('"id": "')[2].partition('"')[0]
        argv = [*self._login(), *self._command("check", "run", task, "sleep")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as check:  # noqa: S603 - ours
            try:
                self._wait("a guest at work", lambda: self._is_busy(check))
                os.kill(int(self._show("MainPID")), signal.SIGKILL)
                self._wait(
                    "started again", lambda: (self._show("NRestarts"), self._show("ActiveState")) == ("1", "active")
                )
                _require(check.poll() is None, "the check ended with the daemon")
                self._systemctl("restart", _SERVICE)
                _require(check.poll() is None, "the check ended at a restart")
                self._sandbox("check", "stop", task)
                text, _ = check.communicate(timeout=_WAIT_S)
            finally:
                check.kill()
        _require("stopped on request" in text, f"the check ended: {text}")
        self._sandbox("task", "close", task, "--delete")
        self.seen.append("killed, it starts again, and the check of a command goes on")

    def _is_busy(self, check: subprocess.Popen[str]) -> bool:
        if check.poll() is not None:
            raise RuntimeError(f"the check ended early: {check.communicate()[0][-400:]}")
        return '"busy": true' in self._sandbox("top", "--json")

    def _stop(self) -> None:
        self._systemctl("stop", _SOCKET, _SERVICE)
        group = self._show("ControlGroup")
        left = Path(f"/sys/fs/cgroup{group}/cgroup.procs").read_text().split() if group else []
        _require(not left, f"processes left: {left}")
        _require(self._show("Result") == "success", "its end was a failure")
        _require('"guests": []' in self._sandbox("top", "--json"), "guests are left")
        self.seen.append("stopped, no process and no guest is left")

    def _start_with_a_mistake(self) -> None:
        settings = self._home / "config.toml"
        settings.write_text('[serve]\nreconcile_s = "often"\n')
        self._systemctl("reset-failed", _SERVICE, is_good=False)  # the starts so far
        try:
            self._systemctl("start", _SERVICE, is_good=False)
            self._wait("given up", lambda: self._show("ActiveState") == "failed")
            starts = int(self._show("NRestarts"))
            _require(starts <= _MOST_STARTS, f"started {starts} times")
            log = self._run(["journalctl", *self._scope, "--no-pager", "--unit", _SERVICE, "--lines=40"])
            _require("serve.reconcile_s" in log, f"its log has no reason: {log}")
        finally:
            settings.unlink()
        self.seen.append(f"given up after {starts} starts with a mistake in config.toml")

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-I", "-m", "sandbox", "--home", str(self._home), *arguments]

    def _login(self) -> list[str]:
        variables = [f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ]
        groups = ["setpriv", "--reuid=0", "--regid=0", "--init-groups"] if self._is_root else []
        return [*groups, "env", "-i", *variables]

    def _sandbox(self, *arguments: str) -> str:
        return self._run(self._command(*arguments))

    def _run(self, argv: list[str]) -> str:
        done = subprocess.run(  # noqa: S603 - ours
            [*self._login(), *argv], capture_output=True, text=True, check=False, timeout=_WAIT_S, cwd="/"
        )
        if done.returncode:
            raise RuntimeError(f"{argv[-3:]} ended with {done.returncode}: {(done.stderr or done.stdout)[-400:]}")
        return done.stdout

    def _systemctl(self, *words: str, is_good: bool = True) -> str:
        argv = ["systemctl", *self._scope, *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_WAIT_S)  # noqa: S603 - ours
        if is_good and done.returncode:
            raise RuntimeError(f"{argv} ended with {done.returncode}: {done.stderr[-400:]}")
        return done.stdout

    def _show(self, name: str) -> str:
        return self._systemctl("show", "--property", name, "--value", _SERVICE).strip()

    @staticmethod
    def _wait(state: str, condition: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + _WAIT_S
        while not condition():
            _require(time.monotonic() < ends_at, f"not {state} within {_WAIT_S:g} s")
            time.sleep(0.5)


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise RuntimeError(otherwise)
