"""S17: the start time of the command: alone, and with a list of 200 tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from devtools.command import SANDBOX
from sandbox.workbench import Workbench

TASKS = 200


def run(argv: list[str], environ: Mapping[str, str] | None = None) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=environ)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with Workbench(home, allow_file=True) as workbench:
            repo_id = workbench.clone(str(make(Path(folder) / "source.git", "small"))).repository.id
            tasks = [workbench.create_task(repo_id, f"task {n}") for n in range(TASKS)]
            try:
                _measure([*SANDBOX, "--home", str(home)], _installed(Path(folder)))
            finally:
                for task in tasks:
                    workbench.close_task(task.id, delete_worktree=True)


def _installed(folder: Path) -> dict[str, str]:
    """An environment with compiled modules, as in a wheel, even if PYTHONDONTWRITEBYTECODE is set."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def _measure(command: list[str], environ: Mapping[str, str]) -> None:
    compare(
        "S17 --version",
        lambda: run([*command, "--version"], environ),
        lambda: run([sys.executable, "-c", "pass"]),
        floor_name="python -c pass",
        target="6x",
    )
    compare(
        f"S17 task list, {TASKS} tasks",
        lambda: run([*command, "task", "list"], environ),
        lambda: run(["docker", "ps"]),
        floor_name="docker ps",
        target="4x",
    )


if __name__ == "__main__":
    main()
