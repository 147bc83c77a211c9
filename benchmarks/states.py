"""S8: status and diff after editing one file, against `git status` and `git diff` in a clone of the same commit.

S12: commit of one changed file, against `git add -A && git commit` there. Snapshot and restore are measured against the
same commit, because plain git has no such command.
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
IDENTITY = ("-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0")


def measure(size: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(remote), str(clone)], check=True)
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            task = workbench.create_task(workbench.clone(str(remote)).repository.id)
            assert task.worktree_path is not None
            _compare_all(size, workbench, task.id, editor(task.worktree_path), (clone, editor(clone)))
            workbench.close_task(task.id, delete_worktree=True, discard=True)


def editor(root: Path) -> Callable[[], None]:
    """Each call gives one file new content."""
    numbers = itertools.count()

    def edit() -> None:
        (root / FILE).write_text(f"changed {next(numbers)}\n")

    return edit


def _compare_all(
    size: str, workbench: Workbench, task: str, edit: Callable[[], None], plain: tuple[Path, Callable[[], None]]
) -> None:
    clone, edit_plain = plain

    def git(*args: str) -> None:
        subprocess.run(["git", *IDENTITY, *args], cwd=clone, check=True, stdout=subprocess.DEVNULL)

    def look() -> None:
        edit()
        workbench.status(task)
        workbench.diff(task, "head")

    def look_plain() -> None:
        edit_plain()
        git("status", "--porcelain")
        git("diff", "HEAD")

    def commit() -> None:
        edit()
        workbench.commit(task, "one file")

    def commit_plain() -> None:
        edit_plain()
        git("add", "-A")
        git("commit", "-q", "-m", "one file")

    def keep_and_restore() -> None:
        edit()
        taken = workbench.snapshot(task)
        edit()
        workbench.restore(task, taken.id)

    target = {"large": ("0.05x", "0.03x"), "medium": ("-", "0.1x")}.get(size, ("-", "-"))
    compare(f"S8 status and diff, {size}", look, look_plain, floor_name="git status, git diff", target=target[0])
    compare(f"S12 commit of one file, {size}", commit, commit_plain, floor_name="git add -A, commit", target=target[1])
    compare(
        f"snapshot and restore, {size}", keep_and_restore, commit_plain, floor_name="git add -A, commit", target="-"
    )


def main() -> None:
    for size in sys.argv[1:] or ["small", "medium"]:
        measure(size)


if __name__ == "__main__":
    main()
