"""Two hosts of a cluster on this machine: a Temporal server, a git server with a hub, and for each host a home, an
engine with data of its own, and `sandbox worker` as a process. All of it ends with the block, also after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from devtools.gitserver import GitServer, introduce
from devtools.privateengine import PrivateEngine
from devtools.temporalserver import connect_to, temporal_server
from devtools.user_ids import release_users_below
from sandbox import Workbench
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.files.mount_points import unmount_below

LOST_AFTER_S = 10.0  # the default of `cluster.lost_after_s`
SLOTS = 32
"""More than agents: a worker with four would let their new tasks wait in the line, whose length is not measured."""

IDLE_S = 60
"""How long the container of a task of a killed worker lives on; the default is ten times as long."""

NAMES = ("one", "two")
IMAGES = tuple(f"space-sandbox/{name}:latest" for name in ("base", "init"))
PROFILE = """\
label = "Load"
image = "base"

[[check]]
id = "true"
label = "true"
argv = ["/bin/true"]

[[check]]
id = "answer"
label = "the first line of the answer is right"
argv = ["/bin/sh", "-c", "head -n 1 answer | grep -qx right"]

[[check]]
id = "wait"
label = "wait for a minute"
argv = ["/bin/sleep", "60"]
timeout_s = 300
"""
_START_S = 120.0
_STOP_S = 120.0


@dataclass(frozen=True)
class ContainerState:
    """A container of an engine. `status`: for people."""

    name: str
    status: str
    is_running: bool


@dataclass
class WorkerHost:
    """A host of the cluster. `worker`: its id, once it was started; `log`: what it said."""

    name: str
    home: Path
    engine: PrivateEngine
    log: Path
    worker: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the worker; returns when it takes tasks. Raises: RuntimeError."""
        seen = self.log.stat().st_size if self.log.exists() else 0
        argv = [
            sys.executable,
            "-I",
            "-m",
            "sandbox",
            "--home",
            str(self.home),
            "worker",
            "--label",
            f"host={self.name}",
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=_environ(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        ends_at = time.monotonic() + _START_S
        while b"takes tasks" not in (said := self.log.read_bytes()[seen:]):
            if self.process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"The worker did not start: {said.decode(errors='replace')[-2000:]}")
            time.sleep(0.05)
        self.worker = next(line.split()[0].decode() for line in said.splitlines() if b"takes tasks" in line)

    def kill(self) -> None:
        """End the worker with SIGKILL, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End the worker as an operator does: operations in progress end first."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
            self.kill()

    def open(self) -> Workbench:
        """Another controller of this home."""
        return Workbench(self.home, environ={"PATH": os.environ["PATH"], "HOME": str(self.home)})

    def list_containers(self) -> list[ContainerState]:
        """All that its engine has."""
        with closing(self.engine.connect()) as engine:
            found = engine.api.containers(all=True)
        return [
            ContainerState(one["Names"][0].removeprefix("/"), one["Status"], one["State"] == "running") for one in found
        ]

    def collect_garbage(self) -> None:
        """`sandbox gc` on its home."""
        argv = [sys.executable, "-I", "-m", "sandbox", "--home", str(self.home), "gc"]
        subprocess.run(argv, env=_environ(), check=False, timeout=_STOP_S, stdout=subprocess.DEVNULL)


@dataclass
class Cluster:
    """`url`: of the repository that tasks work on; `hub`: of the hub."""

    url: str
    hub: str
    dispatcher: TemporalDispatcher
    hosts: dict[str, WorkerHost]

    def find_host(self, worker: str) -> WorkerHost:
        """The host with this worker."""
        return next(host for host in self.hosts.values() if host.worker == worker)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The cluster without workers. Raises: RuntimeError on a machine that cannot have engines of our own."""
    if reason := PrivateEngine.why_not():
        raise RuntimeError(reason)
    with ExitStack() as stack:
        base = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-load-", ignore_cleanup_errors=True))
        )
        stack.callback(release_users_below, base)
        stack.callback(unmount_below, base)
        server = stack.enter_context(GitServer())
        address = stack.enter_context(temporal_server(base / "temporal.log"))
        url, hub = _seed(server, base)
        cluster = f"load-{uuid.uuid4().hex[:8]}"
        hosts = {}
        for name in NAMES:
            engine = stack.enter_context(PrivateEngine())
            settings: dict[str, dict[str, object]] = {
                "cluster": {"address": address, "name": cluster, "hub": hub, "slots": SLOTS},
                "engine": {"host": engine.url},
                "container": {"idle_s": IDLE_S},
            }
            host = WorkerHost(name, introduce(base / name, server), engine, base / f"{name}.log")
            (host.home / "config.toml").write_text(_write_toml(settings))
            (host.home / "profiles").mkdir()
            (host.home / "profiles" / "generic.toml").write_text(PROFILE)
            engine.load(*IMAGES)
            stack.callback(host.kill)
            hosts[name] = host
        place = ClusterAddress(address, name=cluster, lost_after_s=LOST_AFTER_S)
        dispatcher = stack.enter_context(closing(connect_to(place)))
        yield Cluster(url, hub, dispatcher, hosts)


def _environ() -> dict[str, str]:
    """Of a worker: without settings of this machine's home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    return {**kept, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


def _write_toml(settings: Mapping[str, Mapping[str, object]]) -> str:
    """Text and numbers, in sections."""
    sections = (
        "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in rows.items())])
        for name, rows in settings.items()
    )
    return "\n\n".join(sections) + "\n"


def _seed(server: GitServer, base: Path) -> tuple[str, str]:
    files = base / "files"
    files.mkdir()
    (files / "answer").write_text("wrong\n")
    server.seed("load", "project", files)
    server.create("load", "hub")
    return server.https_url("load", "project"), server.https_url("load", "hub")
