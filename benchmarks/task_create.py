"""S6: create a task, against plain `git worktree add` of the same commit; and close it again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox import Workbench


def measure(size: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        numbers = itertools.count()
        git = ["git", f"--git-dir={remote}"]
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            repository = workbench.clone(str(remote)).repository

            def product() -> None:
                task = workbench.create_task(repository.id)
                workbench.close_task(task.id, delete_worktree=True, discard=True)

            def floor() -> None:
                tree = str(folder / f"tree{next(numbers)}")
                subprocess.run([*git, "worktree", "add", "-q", "--detach", tree, "main"], check=True)
                subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)

            compare(f"S6 task create and close, {size}", product, floor, floor_name="git worktree add", target="0.01x")


def main() -> None:
    for size in sys.argv[1:] or ["small", "medium"]:
        measure(size)


if __name__ == "__main__":
    main()
