"""S6: create a task, against plain `git worktree add` of the same commit; by size, and after churn.

S7: the disk space of a clean task, against such a worktree. S10: the hash of one base file, which is the cost of a
task's first access to it, against hashing every tracked file; creating a task computes no hash.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._harness import Rounds, compare, judge, timed
from benchmarks._repositories import make
from sandbox import Workbench

CYCLES = 20
SERIES = 5
MOST = {"medium": 5, "large": 2}
"""Maximum rounds with git's worktrees: creating one takes seconds, and longer after others were removed."""
FILE = "d1/e1/f1.txt"


class Ours:
    """Tasks of one repository in their own home."""

    def __init__(self, workbench: Workbench, home: Path, remote: Path) -> None:
        self.workbench, self.home = workbench, home
        self._repo_id = workbench.clone(str(remote)).repository.id

    def create(self) -> str:
        return self.workbench.create_task(self._repo_id).id

    def close_all(self) -> None:
        for task in self.workbench.tasks():
            if task.worktree_path is not None:
                self.workbench.close_task(task.id, delete_worktree=True, discard=True)


class Plain:
    """Worktrees of one repository, created by git."""

    def __init__(self, remote: Path, folder: Path) -> None:
        self._git, self._folder, self._numbers = ["git", f"--git-dir={remote}", "worktree"], folder, itertools.count()

    def create(self) -> Path:
        tree = self._folder / f"tree{next(self._numbers)}"
        subprocess.run([*self._git, "add", "-q", "--detach", str(tree), "main"], check=True)
        return tree

    def remove_all(self) -> None:
        for tree in self._folder.glob("tree*"):
            subprocess.run([*self._git, "remove", "--force", str(tree)], check=True)


@contextmanager
def both(size: str) -> Iterator[tuple[Ours, Plain]]:
    """One repository for both sides."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            ours = Ours(workbench, folder / "home", remote)
            try:
                yield ours, Plain(remote, folder)
            finally:
                ours.close_all()  # a remaining mount would prevent removal of the folder


def measure(size: str) -> None:
    with both(size) as (ours, plain):

        def tidy() -> None:
            ours.close_all()
            plain.remove_all()

        def create_and_close() -> None:
            ours.create()
            ours.close_all()

        def add_and_remove() -> None:
            plain.create()
            plain.remove_all()

        floor, target = "git worktree add", "0.01x" if size == "large" else "-"
        most = MOST.get(size, 15)
        compare(
            f"S6 task create, {size}", ours.create, plain.create,
            floor_name=floor, target=target, rounds=Rounds(most, tidy),
        )  # fmt: skip
        if size != "large":
            compare(
                f"S6 task create and close, {size}", create_and_close, add_and_remove,
                floor_name=f"{floor}, remove", target="-", rounds=Rounds(most),
            )  # fmt: skip
        _churn(size, ours)
        tree = plain.create()
        _weigh(size, ours, tree)
        _hash(size, ours, tree)


def _churn(size: str, ours: Ours) -> None:
    """The last of `CYCLES` create and delete cycles against the first."""
    pairs = []
    for _ in range(SERIES):
        times = []
        for _ in range(CYCLES):
            times.append(timed(ours.create))
            ours.close_all()
        pairs.append((times[-1], times[0]))
    name = f"S6 create, {CYCLES}th of {CYCLES} create and delete, {size}"
    judge(name, pairs, floor_name="the first", target="1.2x")


def _weigh(size: str, ours: Ours, tree: Path) -> None:
    before = _disk(ours.home)
    ours.create()
    added = _disk(ours.home) - before
    target = "0.001x" if size == "large" else "-"
    judge(
        f"S7 disk of a clean task, {size}",
        [(added, _disk(tree))],
        floor_name="git worktree add",
        target=target,
        unit="KiB",
    )


def _disk(folder: Path) -> float:
    """Disk blocks in KiB, without mounted file systems."""
    out = subprocess.run(["du", "-skx", str(folder)], check=True, capture_output=True).stdout
    return float(out.split()[0])


def _hash(size: str, ours: Ours, tree: Path) -> None:
    task = ours.create()
    listed = subprocess.run(["git", "-C", str(tree), "ls-files", "-z"], check=True, capture_output=True).stdout
    paths = [tree / os.fsdecode(name) for name in listed.split(b"\0") if name]

    def floor() -> None:
        for path in paths:
            hashlib.sha256(path.read_bytes()).hexdigest()

    target = "0.01x" if size == "large" else "-"
    compare(
        f"S10 base hash of one file, {size}", lambda: ours.workbench.base_hash(task, FILE), floor,
        floor_name="sha256 of every tracked file", target=target,
    )  # fmt: skip


def compare_sizes(small: str, large: str) -> None:
    with both(small) as (ours, _), both(large) as (ours_large, _):

        def tidy() -> None:
            ours.close_all()
            ours_large.close_all()

        name = f"S6 task create, {large} to {small}"
        compare(
            name, ours_large.create, ours.create,
            floor_name=f"task create, {small}", target="1.5x", rounds=Rounds(tidy=tidy),
        )  # fmt: skip


def main() -> None:
    sizes = sys.argv[1:] or ["small", "medium"]
    for size in sizes:
        measure(size)
    if len(sizes) > 1:
        compare_sizes(sizes[0], sizes[-1])


if __name__ == "__main__":
    main()
