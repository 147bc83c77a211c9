"""Clusters for tests: a real Temporal server, workers as processes of their own, and a hub over https."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionDescription

from devtools.command import SANDBOX, find_command_line
from devtools.gitserver import GitServer, introduce
from devtools.temporalserver import connect_to
from sandbox.cluster import temporal_dispatcher
from sandbox.cluster.temporal_client import ClusterAddress
from sandbox.cluster.temporal_dispatcher import TemporalDispatcher
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation

MAKEFILE = (
    "all:\n\t@if test -f wait; then sleep 300; fi; if test -f pause; then until test -f go; do sleep 0.1; done; fi\n\n"
    "test:\n\tgrep -q right answer\n"
)
_BEGUN = re.compile(r"^(worker-\w+) (?:takes|publishes) tasks", re.MULTILINE)
LOST_AFTER_S = 6.0
BUSY_S = 45.0
"""How long a test waits until a worker takes a task: beside other tests a worker may be slow. Where the line itself is
tested, the test says another time.
"""


@dataclass
class Cluster:
    """The server, its dispatcher, and workers that a test can start and kill."""

    address: str
    name: str
    url: str
    hub: str
    base: Path
    server: GitServer
    dispatcher: TemporalDispatcher
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Variables of a home that belongs to the cluster."""
        return {
            "SANDBOX_CLUSTER_ADDRESS": self.address,
            "SANDBOX_CLUSTER_NAME": self.name,
            "SANDBOX_CLUSTER_HUB": self.hub,
        }

    def start_worker(
        self,
        name: str,
        slots: int = 0,
        role: str = "work",
        settings: Mapping[str, str] | None = None,
        forked: bool = True,
    ) -> str:
        """Start a worker in a process of its own; returns its id once it takes tasks, or publishes them. `settings`:
        variables of this worker.

        `forked`: its process may stand for a fork, which gets SIGTERM from it, and ends when it is killed.
        """
        home, log = self.base / name, self.base / f"{name}.log"
        if not home.exists():
            introduce(home, self.server)
        environ = {
            **os.environ,
            "SANDBOX_HOME": str(home),
            **self.settings,
            "SANDBOX_CLUSTER_ROLE": role,
            "SANDBOX_CLUSTER_SLOTS": str(slots),
            **(settings or {}),
        }
        argv = [*(find_command_line(("worker",), environ) if forked else SANDBOX), "worker"]
        with log.open("wb") as stream:
            process = subprocess.Popen(argv, env=environ, stderr=stream, cwd=self.base)
        found: list[str] = []

        def has_begun() -> bool:
            assert process.poll() is None, log.read_text()
            found.extend(_BEGUN.findall(log.read_text()))
            return bool(found)

        try:
            until(has_begun)
        except BaseException:
            process.kill()
            process.wait()
            raise
        self.workers[found[0]] = process
        return found[0]

    def kill(self, worker: str) -> None:
        process = self.workers.pop(worker)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for worker in [*self.workers]:
            self.kill(worker)

    def has_begun(self, task: str) -> bool:
        """Whether a worker has taken the operation that the task waits for."""
        pending = self._describe(task).raw_description.pending_activities
        started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        return any(one.activity_type.name == "perform" and one.state == started for one in pending)

    def count_events(self, task: str) -> int:
        """Of the history of a task at the server."""
        return int(self._describe(task).history_length or 0)

    def find_history(self, task: str) -> str:
        """Which history of a task is the present one."""
        return str(self._describe(task).run_id)

    def _describe(self, task: str) -> WorkflowExecutionDescription:
        return self.dispatcher._wait(self.dispatcher._handle(task).describe())

    def let_go(self, task: str) -> None:
        """End a check that found the file `pause`: it waits for another one."""
        (worktree,) = self.base.glob(f"*/repositories/worktrees/*/{task}")
        (worktree / "go").touch()

    def drain(self, worker: str) -> None:
        self.workers[worker].send_signal(signal.SIGTERM)

    def wait_for_end(self, worker: str) -> int:
        """The exit code of a worker that was told to end."""
        process = self.workers.pop(worker)
        return process.wait(60)

    def ask(
        self, task: str, name: OperationName, arguments: Mapping[str, Any] | None = None, key: str = ""
    ) -> OperationAnswer:
        operation = TaskOperation(id=key or uuid.uuid4().hex, task_id=task, name=name, arguments=arguments or {})
        self.dispatcher.submit(operation)
        answer = self.dispatcher.result(operation)
        assert answer is not None
        return answer

    def begin(self) -> str:
        placed = self.dispatcher.place(self.url, {"prompt": "Answer right"})
        assert placed.error is None, placed.error
        return placed.task_id

    def write(self, task: str, content: str, path: str = "answer", sha256: str | None = None) -> OperationAnswer:
        encoded = base64.b64encode(content.encode()).decode()
        arguments = {"path": path, "content": encoded, "expected_sha256": sha256}
        answer = self.ask(task, OperationName.WRITE_FILE, arguments)
        assert answer.error is None, answer.error
        return answer


def until(happens: Callable[[], bool], within_s: float = 60) -> None:
    """Wait for what must happen within a minute."""
    deadline = time.monotonic() + within_s
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def connected(address: str, name: str, publisher_s: float = 30.0) -> Iterator[TemporalDispatcher]:
    place = ClusterAddress(address, name=name, lost_after_s=LOST_AFTER_S, publisher_s=publisher_s)
    with closing(connect_to(place)) as dispatcher:
        yield dispatcher


@contextmanager
def cluster_of(temporal: str, git_server: GitServer, base: Path) -> Iterator[Cluster]:
    """A cluster without workers, with a repository and a hub. `base`: an empty folder for the workers' homes."""
    files = base / "files"
    files.mkdir()
    (files / "Makefile").write_text(MAKEFILE)
    (files / "answer").write_text("wrong\n")
    owner, name = f"temporal-{uuid.uuid4().hex[:8]}", f"test-{uuid.uuid4().hex[:8]}"
    git_server.seed(owner, "project", files)
    git_server.create(owner, "hub")
    with connected(temporal, name) as dispatcher, ExitStack() as stack:
        found = Cluster(
            temporal, name, git_server.https_url(owner, "project"), git_server.https_url(owner, "hub"), base,
            git_server, dispatcher,
        )  # fmt: skip
        stack.enter_context(patch.object(temporal_dispatcher, "BUSY_S", BUSY_S))
        stack.callback(found.kill_all)
        yield found
