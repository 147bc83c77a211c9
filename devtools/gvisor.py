"""Make gVisor one of a local engine's runtimes: merge it into the engine's daemon.json and have it read that again.

dockerd takes up runtimes on SIGHUP, so nothing that runs is disturbed. Seen with Docker 20.10: the first reload drops
the alias `io.containerd.runc.v2` from the list, which nothing of ours uses.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sandbox.engine.connection import DockerEngine, connect
from sandbox.engine.runtimes import list_runtimes
from sandbox.errors import SandboxError

NAME = "runsc"
ARGUMENTS = ("--network=none", "--platform=ptrace")
"""Without the first no container without a network starts; the platform `kvm` hangs where there is no KVM."""

SOCKET = "unix:///var/run/docker.sock"
PID_FILE = Path("/var/run/docker.pid")
CONFIGURATION = Path("/etc/docker/daemon.json")
DEADLINE_S = 30.0


class Refused(Exception):
    """Why it is not registered: what somebody has to decide."""


def with_runtime(text: str, program: str) -> str:
    """A daemon.json with the runtime; what is in it stays. Pure. Raises: `Refused`."""
    try:
        configuration: Any = json.loads(text or "{}")
        known = configuration.setdefault("runtimes", {})
        entry = known.setdefault(NAME, {"path": program, "runtimeArgs": list(ARGUMENTS)})
    except (ValueError, AttributeError) as error:
        raise Refused(f"{CONFIGURATION} is not what it should be: {error}") from error
    if "path" not in entry:
        raise Refused(f"{CONFIGURATION} has another '{NAME}' than ours; it stays as it is")
    return json.dumps(configuration, indent=2) + "\n"


def reloadable(command_line: list[str]) -> bool:
    """Whether an engine started like this reads `CONFIGURATION`, and takes its runtimes from nowhere else. Pure."""
    return not any(word.startswith(("--config-file", "--add-runtime")) for word in command_line)


def register(engine: DockerEngine) -> None:
    """Raises: `Refused`, OSError."""
    if NAME in list_runtimes(engine):
        return
    program = shutil.which(NAME)
    if program is None:
        raise Refused(f"{NAME} is not installed")
    pid = _engine_pid(engine)
    before = CONFIGURATION.read_text() if CONFIGURATION.exists() else ""
    _publish(with_runtime(before, program))
    os.kill(pid, signal.SIGHUP)
    ends_at = time.monotonic() + DEADLINE_S
    while NAME not in list_runtimes(engine):
        if time.monotonic() > ends_at:
            raise Refused(f"The engine did not take it up within {DEADLINE_S:g} s; see its log")
        time.sleep(0.1)


def _engine_pid(engine: DockerEngine) -> int:
    """The engine behind the default socket: another one has files of its own."""
    if engine.endpoint.url not in (SOCKET, SOCKET.replace("/var/run", "/run")):
        raise Refused(f"The engine at {engine.endpoint.url} is not this machine's own")
    pid = int(PID_FILE.read_text())
    if Path(f"/proc/{pid}/comm").read_text().strip() != "dockerd":
        raise Refused(f"Process {pid}, which {PID_FILE} names, is no dockerd")
    if not reloadable(Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
        raise Refused("The engine was started with a configuration or runtimes of its own")
    return pid


def _publish(text: str) -> None:
    beside = CONFIGURATION.with_name(f".{CONFIGURATION.name}.{os.getpid()}")
    CONFIGURATION.parent.mkdir(exist_ok=True)
    try:
        beside.write_text(text)
        if CONFIGURATION.exists():
            shutil.copymode(CONFIGURATION, beside)
        beside.replace(CONFIGURATION)
    finally:
        beside.unlink(missing_ok=True)


def main() -> int:
    """For `scripts/setup`."""
    try:
        engine = connect("", os.environ, DEADLINE_S)
        try:
            register(engine)
        finally:
            engine.close()
    except (Refused, OSError, ValueError, SandboxError) as error:
        sys.stderr.write(f"gvisor: not registered. {error}\n")
        return 1
    sys.stderr.write("gvisor: ready\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
