"""`sandbox serve` on a home, as its own process, for tests and benchmarks."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from devtools.command import SANDBOX
from devtools.ready_daemon import find_daemon
from sandbox.command_client import RUNS, _build_request, _connect, _describe_streams, _send
from sandbox.daemon.place import DaemonRecord

_START_S = 120.0
_CALL_S = 240.0


class RunningDaemon:
    """A daemon and its record. `process`: it was started by us, and keeps its id when it replaces its program."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.home, self.process, self.log = home, process, log

    @property
    def record(self) -> DaemonRecord:
        found = find_daemon(self.home)
        assert found is not None, self.log.read_text()
        return found

    def wait_for_socket(self, name: str = "commands.sock") -> None:
        """A daemon that was killed leaves its sockets and its record, which are there at once."""
        until = time.monotonic() + _START_S
        while not self._serves() or not (self.home / "serve" / name).is_socket():
            assert time.monotonic() < until, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def _serves(self) -> bool:
        found = find_daemon(self.home)
        return found is not None and found.pid == self.process.pid

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of one tool of the JSON API at the Unix socket: a result, or `{"error": ...}`.

        Raises: `httpx2.TransportError` if no process answers.
        """
        transport = httpx2.HTTPTransport(uds=str(self.home / "serve/api.sock"))
        with httpx2.Client(transport=transport, timeout=_CALL_S) as client:
            return dict(client.post(f"http://sandbox/api/v1/{tool}", json=arguments).json())

    def replace_program(self) -> None:
        """As an upgrade does; waits until the new program serves."""
        before = self.record.started_at
        self.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + _START_S
        while (found := find_daemon(self.home)) is None or found.started_at == before:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)


@contextmanager
def serving(
    home: Path, *arguments: str, environ: Mapping[str, str] | None = None, program: Sequence[str] = SANDBOX
) -> Iterator[RunningDaemon]:
    """A daemon on this home until the block ends."""
    home.mkdir(mode=0o700, exist_ok=True, parents=True)
    log = home.parent / f"{home.name}-daemon.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(
            ["env", "--default-signal=INT,HUP,TERM", *program, "--home", str(home), "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=None if environ is None else dict(environ),
        )
    daemon = RunningDaemon(home, process, log)
    try:
        daemon.wait_for_socket()
        yield daemon
    finally:
        process.terminate()
        process.wait(60)


def ask(home: Path, *arguments: str) -> bytes:
    """Send a command as this process, and return the daemon's answer: `R` or `N` with a reason; b'' for none."""
    connection = _connect(str(home))
    if connection is None:
        return b""
    streams = _describe_streams()
    assert streams is not None
    _send(connection, _build_request(list(arguments), streams))
    answer: bytes = connection.recv(1)
    if answer not in {RUNS, b""}:
        answer += connection.recv(1000)
    connection.close()
    return answer
