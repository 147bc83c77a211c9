"""What the attacks of `benchmarks.memory` share: a home with repositories, and requests that may be refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtools.delta_bombs import make_delta_bomb
from sandbox import Workbench
from sandbox.errors import SandboxError

MIB = 1024**2
THREADS = 16
ONE, ALL = 300, 600
"""Most megabytes for one request, and for many at once."""
Words = list[str]
"""What an attack is prepared with: ids, addresses and paths."""
Request = Callable[[Workbench, Words], None]
Attack = tuple[Callable[["Site"], Words], Request, int]
"""How it is prepared, what is measured, and the most megabytes."""


class Site:
    """A home with repositories."""

    def __init__(self, folder: Path, size: int, workbench: Workbench) -> None:
        self.folder, self.size, self.workbench = folder, size, workbench

    def clone(self, name: str, size: int, endings: list[bytes]) -> str:
        remote = self.folder / f"{name}.git"
        if not remote.exists():
            make_delta_bomb(remote, size, endings)
        return self.workbench.clone(str(remote)).repository.id

    def new_task(self) -> str:
        return self.workbench.create_task(self.clone("small", 100, [])).id

    def root_of(self, task_id: str) -> Path:
        return next(self.folder.glob(f"home/**/worktrees/**/{task_id}"))

    def write_large(self, task_id: str, most: int = sys.maxsize) -> None:
        with (self.root_of(task_id) / "large").open("wb") as file:
            file.truncate(min(self.size, most))


def attempt(work: Callable[[], object]) -> None:
    """Run a request that may be refused."""
    try:
        work()
    except SandboxError as error:
        print(f"refused: {error.code}, {error.brief}", file=sys.stderr)


def run_at_once(workbench: Workbench, work: Sequence[tuple[Request, str]]) -> None:
    """Requests, each about one repository or task."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda item: item[0](workbench, [item[1]]), work))
