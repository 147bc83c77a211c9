"""S13: 32 warm checks at once, against the engine's exec in the same containers. S14: a warm check beside idle tasks.

Arguments: sizes, as for the other scripts. The largest sets the number of idle tasks; 200 without arguments.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker

from benchmarks._harness import ROUNDS, compare, judge, timed
from benchmarks._repositories import make
from sandbox import Workbench
from sandbox.models import TaskStatus, Verdict

PROFILE = 'label = "Trivial"\nimage = "base"\n[[check]]\nid = "true"\nlabel = "true"\nargv = ["/bin/true"]\n'
AT_ONCE = 32
IDLE = {"small": 20, "medium": 60, "large": 200}


class Bench:
    """A home, its tasks, and the engine's ids of their containers."""

    def __init__(self, folder: Path, api: docker.APIClient) -> None:
        (folder / "home" / "profiles").mkdir(parents=True)
        (folder / "home" / "profiles" / "generic.toml").write_text(PROFILE)
        self.api = api
        self.workbench = Workbench(folder / "home", allow_file=True, environ={})
        self.repo_id = self.workbench.clone(str(make(folder / "remote.git", "small"))).repository.id

    def warm(self, count: int) -> list[str]:
        """Create tasks with one container each."""
        tasks = [self.workbench.create_task(self.repo_id).id for _ in range(count)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.check, tasks))
        return tasks

    def check(self, task_id: str) -> float:
        """The duration of one check in milliseconds."""
        started = time.perf_counter()
        assert self.workbench.run_checks(task_id, ["true"])[0].verdict is Verdict.PASSED
        return (time.perf_counter() - started) * 1000

    def containers(self) -> list[str]:
        label = f"space.sandbox.instance={self.workbench._services.home.instance_id}"
        return [str(c["Id"]) for c in self.api.containers(filters={"label": label})]

    def execute(self, container: str) -> None:
        """Run the same command with the engine's exec."""
        created: Any = self.api.exec_create(container, ["/bin/true"])
        self.api.exec_start(created["Id"])
        assert self.api.exec_inspect(created["Id"])["ExitCode"] == 0

    def close(self) -> None:
        """Close every open task, with its container."""
        for task in self.workbench.tasks():
            if task.status is not TaskStatus.CLOSED:
                self.workbench.close_task(task.id, delete_worktree=True, discard=True)


def at_once(act: Callable[[str], Any], items: Sequence[str]) -> list[Any]:
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(act, items))


def throughput(bench: Bench) -> None:
    tasks = bench.warm(AT_ONCE)
    containers = bench.containers()
    name = f"S13 {AT_ONCE} warm checks at once"
    compare(
        name,
        lambda: at_once(bench.check, tasks),
        lambda: at_once(bench.execute, containers),
        floor_name=f"{AT_ONCE} engine exec at once",
        target="0.1x",
    )
    spreads = [sorted(at_once(bench.check, tasks)) for _ in range(ROUNDS)]
    pairs = [(each[len(each) * 95 // 100], each[len(each) // 2]) for each in spreads]
    judge(f"{name}, 95th percentile", pairs, floor_name="the median check", target="4x")
    bench.close()


def among_idle(bench: Bench, count: int) -> None:
    task = bench.warm(1)[0]
    before = [bench.check(task) for _ in range(ROUNDS)]
    idle = bench.warm(count)
    beside = [bench.check(task) for _ in range(ROUNDS)]
    listed = [(timed(bench.workbench.tasks), timed(lambda: bench.api.containers(all=True))) for _ in range(ROUNDS)]
    for task_id in idle:
        bench.workbench.close_task(task_id, delete_worktree=True)
    after = [bench.check(task) for _ in range(ROUNDS)]
    alone = [(a + b) / 2 for a, b in zip(before, after, strict=True)]
    pairs = list(zip(beside, alone, strict=True))
    judge(f"S14 warm check, {count} idle tasks", pairs, floor_name="no idle task, before and after", target="1.2x")
    judge(f"S14 list of {count + 1} tasks", listed, floor_name="the engine's list of containers", target="1.5x")


def main() -> None:
    count = max((IDLE[name] for name in sys.argv[1:]), default=200)
    api = docker.APIClient(timeout=120)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), api)
        with bench.workbench, contextlib.closing(bench):
            throughput(bench)
            among_idle(bench, count)
    api.close()


if __name__ == "__main__":
    main()
