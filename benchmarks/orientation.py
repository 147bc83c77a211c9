"""Clone, envelope, map and concurrent fetches, each against plain git doing the same transfer or listing."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks._harness import compare
from benchmarks._repositories import make
from sandbox import Workbench

CALLERS = 100


def measure(size: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = make(folder / "remote.git", size)
        numbers = itertools.count()

        def clone() -> None:
            with Workbench(folder / f"home{next(numbers)}", allow_file=True, environ=os.environ) as workbench:
                workbench.clone(str(remote))

        def plain_clone() -> None:
            target = str(folder / f"plain{next(numbers)}.git")
            subprocess.run(["git", "clone", "-q", "--bare", f"file://{remote}", target], check=True)

        compare(f"clone and envelope, {size}", clone, plain_clone, floor_name="git clone --bare", target="-")
        with Workbench(folder / "home", allow_file=True, environ=os.environ) as workbench:
            repository = workbench.clone(str(remote)).repository
            cached = folder / "home" / "repositories" / "clones" / repository.id

            def again() -> None:
                workbench.clone(str(remote))

            def fetch() -> None:
                subprocess.run(["git", f"--git-dir={cached}", "fetch", "-q", f"file://{remote}"], check=True)

            compare(f"clone again and envelope, {size}", again, fetch, floor_name="git fetch", target="-")
            workbench.map(repository.id)

            def listing() -> None:
                command = ["git", f"--git-dir={cached}", "ls-tree", "-r", "refs/remotes/origin/main"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

            compare(
                f"map, {size}", lambda: workbench.map(repository.id), listing, floor_name="git ls-tree -r", target="-"
            )

            def crowd() -> None:
                with ThreadPoolExecutor(CALLERS) as pool:
                    list(pool.map(lambda _: workbench.fetch(str(remote)), range(CALLERS)))

            compare(f"{CALLERS} concurrent fetches, {size}", crowd, fetch, floor_name="one git fetch", target="-")


def main() -> None:
    for size in sys.argv[1:] or ["small"]:
        measure(size)


if __name__ == "__main__":
    main()
