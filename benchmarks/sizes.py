"""What operations cost by the size of a repository, 100 to 57,000 files: create, status, diff, commit, search, map.

Prints a table, and draws `repository-sizes.svg` into `benchmarks/results/`, with 57,000 files also into `docs/`. Of the
rounds of one size the median counts. Each operation is of one controller that has done it once; a map needs an engine.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks._harness import RESULTS, ROUNDS, timed
from benchmarks._log_plot import draw_log_plot
from benchmarks._repositories import SIZES, make
from sandbox import Workbench
from sandbox.errors import SandboxError
from sandbox.models import SearchQuery

DOCS = Path(__file__).parents[1] / "docs"
PLOT = "repository-sizes.svg"
EXTRA = {"thousand": (1_000, 4_000)}
"""A size for this plot alone, between small and medium."""
FILE, RARE = "d1/e1/f1.txt", "abcdefab"
MOST = {"large": 5, "big": 7}
"""Maximum rounds, where one takes seconds."""


def measure(size: str) -> dict[str, float]:
    """Milliseconds of each operation; the map is absent without an engine."""
    rounds = min(MOST.get(size, 15), ROUNDS)
    with tempfile.TemporaryDirectory() as name, opened(Path(name), size) as (workbench, repo_id):
        kept = workbench.create_task(repo_id).id
        found = {
            what: statistics.median(timed(action) for _ in range(rounds))
            for what, action in _list_operations(workbench, repo_id, kept).items()
        }
        try:
            found["first map"] = timed(lambda: workbench.map(repo_id))
            found["map again"] = statistics.median(timed(lambda: workbench.map(repo_id)) for _ in range(rounds))
        except SandboxError as error:
            print(f"map: not measured, {error.brief}", file=sys.stderr)
        return found


@contextmanager
def opened(folder: Path, size: str) -> Iterator[tuple[Workbench, str]]:
    """A controller with a repository of this size. All tasks are closed at the end."""
    with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
        try:
            yield workbench, workbench.clone(str(make(folder / "remote.git", size))).repository.id
        finally:
            for task in workbench.tasks():
                if task.worktree_path is not None:
                    workbench.close_task(task.id, delete_worktree=True, discard=True)


def _list_operations(workbench: Workbench, repo_id: str, task_id: str) -> Mapping[str, Callable[[], object]]:
    root, numbers = workbench.task(task_id).worktree_path, itertools.count()
    assert root is not None

    def edit() -> None:
        (root / FILE).write_text(f"changed {next(numbers)}\n")

    def commit() -> None:
        edit()
        workbench.commit(task_id, "work")

    def status() -> None:
        edit()
        workbench.status(task_id)

    def diff() -> None:
        edit()
        workbench.diff(task_id)

    query = SearchQuery(pattern=RARE, max_results=100, timeout_s=60)
    operations = {
        "create": lambda: workbench.create_task(repo_id),
        "status": status,
        "diff": diff,
        "commit": commit,
        "search": lambda: workbench.search(task_id, query),
    }
    for action in operations.values():
        action()
    return operations


def write_table(found: Mapping[int, Mapping[str, float]]) -> str:
    """One row for each operation; the last column is the cost of the largest repository against the smallest."""
    sizes = sorted(found)
    lines = [
        f"| operation, ms | {' | '.join(f'{size:,} files' for size in sizes)} | largest / smallest |",
        f"|---{'|---' * (len(sizes) + 1)}|",
    ]
    for what in found[sizes[0]]:
        cells = [f"{found[size][what]:.3g}" if what in found[size] else "" for size in sizes]
        largest = found[sizes[-1]].get(what)
        ratio = f"{largest / found[sizes[0]][what]:.2g}x" if largest else ""
        lines.append(f"| {what} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    SIZES.update(EXTRA)
    wanted = {"small", "thousand", *sys.argv[1:]} if sys.argv[1:] else {"small", "thousand", "medium"}
    found: dict[int, dict[str, float]] = {}
    for size in sorted(wanted, key=lambda size: SIZES[size][0]):
        found[SIZES[size][0]] = measure(size)
        print(f"load {os.getloadavg()[0]:.1f}\n{write_table(found)}", flush=True)
    series = {what: {size: found[size][what] for size in found if what in found[size]} for what in found[min(found)]}
    plot = draw_log_plot("Cost by the number of files in a repository", "files", "milliseconds", series)
    RESULTS.mkdir(exist_ok=True)
    for folder in (RESULTS, *([DOCS] if "large" in wanted else [])):
        (folder / PLOT).write_text(plot)


if __name__ == "__main__":
    main()
