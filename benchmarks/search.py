"""Search in a task, against ripgrep on the same files: the first hundred hits, and all hits of a rare pattern.

Needs `rg` (Debian: ripgrep). The floor is a whole run of ripgrep, because it has no limit on the total of hits. Also
measured: the search of git objects alone, without the changes of the worktree, which depend on its layout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox import Workbench
from sandbox.git.grep import Query, grep
from sandbox.git.objects import tree_of
from sandbox.git.process import Git
from sandbox.models import SearchQuery

OFTEN, RARE = "ab", "abcdefab"
FIRST = 100


def measure(size: str, ripgrep: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        plain = folder / "plain"
        subprocess.run(["git", "clone", "-q", str(remote), str(plain)], check=True)
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            repository = workbench.clone(str(remote)).repository
            task = workbench.create_task(repository.id)
            git = Git(folder / "home" / "repositories" / "clones" / repository.id)
            tree = tree_of(git, task.head_commit)

            def search(pattern: str) -> None:
                workbench.search(task.id, SearchQuery(pattern=pattern, max_results=FIRST, timeout_s=60))

            def alone(pattern: str) -> None:
                with closing(grep(git, tree, Query(pattern), (), 60)) as matches:
                    list(islice(matches, FIRST))

            def floor(pattern: str) -> None:
                command = [ripgrep, "--no-config", "-n", "-F", "-e", pattern, str(plain)]
                subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

            for title, pattern, target in (("first hits", OFTEN, "0.2x"), ("full", RARE, "1.3x")):
                for what, product in (("search", search), ("search of the objects", alone)):
                    compare(
                        f"{what}, {title}, {size}",
                        partial(product, pattern),
                        partial(floor, pattern),
                        floor_name="rg, whole run",
                        target=target,
                    )
            workbench.close_task(task.id, delete_worktree=True, discard=True)


def main() -> None:
    ripgrep = shutil.which("rg")
    if ripgrep is None:
        print("search: not measured, the floor `rg` is not installed (Debian: apt-get install ripgrep)")
        return
    for size in sys.argv[1:] or ["medium"]:
        measure(size, ripgrep)


if __name__ == "__main__":
    main()
