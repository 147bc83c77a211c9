"""S17: how long the command takes to start: alone, and with 200 tasks to list."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox.workbench import Workbench

TASKS = 200


def run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with Workbench(home, allow_file=True) as workbench:
            repo_id = workbench.clone(str(make(Path(folder) / "source.git", "small"))).repository.id
            tasks = [workbench.create_task(repo_id, f"task {n}") for n in range(TASKS)]
            try:
                _measure([sys.executable, "-m", "sandbox", "--home", str(home)])
            finally:
                for task in tasks:
                    workbench.close_task(task.id, delete_worktree=True)


def _measure(command: list[str]) -> None:
    compare(
        "S17 --version",
        lambda: run([*command, "--version"]),
        lambda: run([sys.executable, "-c", "pass"]),
        floor_name="python -c pass",
        target="6x",
    )
    compare(
        f"S17 task list, {TASKS} tasks",
        lambda: run([*command, "task", "list"]),
        lambda: run(["docker", "ps"]),
        floor_name="docker ps",
        target="4x",
    )


if __name__ == "__main__":
    main()
