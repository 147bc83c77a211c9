"""S9: status of a plain worktree, clean and with one edit, against `git status` in a clone of the same commit.

The worktree is newly created, so its stat cache exists (workspaces/statcache.py).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox import Workbench

FILE = "d1/e1/f1.txt"


def measure(size: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(remote), str(clone)], check=True)
        plain = {"workspaces": {"worktree": "plain"}}
        with Workbench(folder / "home", allow_file=True, environ=os.environ, settings=plain) as workbench:
            task = workbench.create_task(workbench.clone(str(remote)).repository.id)
            assert task.worktree_path is not None

            _compare_all(size, workbench, task.id, (_editor(task.worktree_path), _editor(clone)), clone)
            workbench.close_task(task.id, delete_worktree=True, discard=True)


def _compare_all(
    size: str, workbench: Workbench, task: str, edits: tuple[Callable[[], None], Callable[[], None]], clone: Path
) -> None:
    def product() -> None:
        workbench.status(task)

    def floor() -> None:
        subprocess.run(["git", "status", "--porcelain"], cwd=clone, check=True, stdout=subprocess.DEVNULL)

    def edited() -> None:
        edits[0]()
        product()

    def edited_floor() -> None:
        edits[1]()
        floor()

    target = "2x" if size == "large" else "-"
    compare(f"S9 status plain, {size}, clean", product, floor, floor_name="git status", target=target)
    compare(f"S9 status plain, {size}, one edit", edited, edited_floor, floor_name="git status", target=target)


def _editor(root: Path) -> Callable[[], None]:
    """Each call gives one file new content."""
    numbers = itertools.count()

    def edit() -> None:
        (root / FILE).write_text(f"changed {next(numbers)}\n")

    return edit


def main() -> None:
    for size in sys.argv[1:] or ["small", "medium"]:
        measure(size)


if __name__ == "__main__":
    main()
