"""A home whose checks end at once or run until somebody ends them, for tests of cancelling and waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.copied_clones import copied_clones
from devtools.guests import remove_guests_of
from sandbox.engine.connection import DockerEngine
from sandbox.files.mount_points import unmount_below
from sandbox.store.home import Home
from sandbox.store.run_queue import RunQueue
from sandbox.workbench import Workbench
from tests.unit.conftest import initialised

DEADLINE_S = 240.0
PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "bench"
[[check]]
id = "quick"
label = "ends at once"
argv = ["true"]
timeout_s = 300
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
[[check]]
id = "long"
label = "runs until somebody ends it"
argv = ["sh", "-c", "echo started; touch began; sleep 1000"]
timeout_s = 1000
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
[[check]]
id = "after"
label = "needs the long one"
argv = ["touch", "after"]
timeout_s = 300
requires = ["long"]
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""

GATED = """
[[check]]
id = "gated"
label = "ends when the test says so"
argv = ["sh", "-c", "echo started; until [ -e go ]; do sleep 0.05; done; echo ended"]
timeout_s = 1000
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""
"""More for `add_checks`."""


class Bench:
    """A home with a repository whose profile has checks that end at once and ones that do not."""

    def __init__(self, root: Path, parallel: int = 0) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles" / "bench.toml").write_text(PROFILE)
        (self.home / "config.toml").write_text(f"[container]\nparallel = {parallel}\n")
        self.upstream = initialised(root / "upstream")
        self.upstream.write("bench", b"one\n")
        self.upstream.commit()
        self.workbench = self.open()
        with copied_clones():
            self.repo_id = self.workbench.clone(str(self.upstream.root)).repository.id

    def open(self) -> Workbench:
        return Workbench(self.home, environ=dict(os.environ), allow_file=True)

    def add_checks(self, text: str) -> None:
        """To the profile."""
        (self.home / "profiles" / "bench.toml").write_text(PROFILE + text)

    def task(self) -> str:
        return self.workbench.create_task(self.repo_id).id

    def worktree(self, task_id: str) -> Path:
        found = self.workbench.task(task_id).worktree_path
        assert found is not None
        return found

    def logs(self, owner: str) -> Path:
        return self.home / "repositories" / "logs" / owner

    def records(self, owner: str) -> list[str]:
        return sorted(p.name for p in self.logs(owner).glob("*.json"))

    def leftovers(self) -> list[str]:
        """Places in the line, wishes, rooms, marks and temporary files: none may be there when nothing runs."""
        below = self.home / "repositories"
        found = [*below.glob("stops/*"), *below.glob("rooms/*"), *below.glob("tasks/*.guest"), *below.rglob("*.tmp")]
        places = RunQueue(below / "turns", 1).list_tickets() if (below / "turns").exists() else []
        return [str(p.relative_to(below)) for p in found] + [ticket.name for ticket in places]


@contextmanager
def opened_bench(root: Path, parallel: int = 0) -> Iterator[Bench]:
    """A bench whose guests and mounts go with it."""
    found = Bench(root, parallel)
    yield found
    found.workbench.__exit__(None, None, None)
    remove_guests_of(found.home)
    unmount_below(found.home)


def assert_nothing_runs(bench: Bench, engine: DockerEngine) -> None:
    """No file says that something is at work; once the tasks are closed, no container is there.

    A request is answered a moment before its file goes: without the file an unanswered one would look killed.
    """
    ends = time.monotonic() + 10
    while (left := bench.leftovers()) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not left, left
    for task in bench.workbench.tasks():
        bench.workbench.close_task(task.id)
    if not (bench.home / "instance").exists():
        return  # no guest was ever started
    label = f"space.sandbox.instance={Home(bench.home).instance_id}"
    assert engine.api.containers(all=True, filters={"label": label}) == []


def began(bench: Bench, task_id: str) -> Callable[[], bool]:
    """Whether the guest of the long check is at work."""
    return (bench.worktree(task_id) / "began").exists


def open_gate(bench: Bench, task_id: str) -> None:
    """Let the gated check end."""
    (bench.worktree(task_id) / "go").touch()
