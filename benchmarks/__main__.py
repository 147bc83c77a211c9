"""Run every benchmark, each in its own process, and print one table at the end, also as rows for docs/benchmarks.md.

`BENCH_SIZES`: the largest repository to measure on: small, medium (the default) or large. `BENCH_ROUNDS`: maximum
rounds of each benchmark. Exit code 1 if a script failed; the others are run all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks._harness import RESULTS, Figures, line, markdown_row

SIZES = ("small", "medium", "large")
LARGEST = {"orientation": "big"}
"""The size that a script uses instead of `large`."""


def main() -> int:
    wanted = os.environ.get("BENCH_SIZES", "medium")
    if wanted not in SIZES:
        print(f"BENCH_SIZES is one of {', '.join(SIZES)}, not {wanted!r}", file=sys.stderr)
        return 2
    for old in RESULTS.glob("*.json"):
        old.unlink()
    scripts = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    failed = [name for name in scripts if not run(name, SIZES[: SIZES.index(wanted) + 1])]
    found = read_results()
    print("\n".join(map(line, found)), end="\n\n")
    print("\n".join(map(markdown_row, found)))
    if failed:
        print(f"Not measured, or only in part: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, sizes: tuple[str, ...]) -> bool:
    """Run one script. Returns whether it succeeded. Its output goes to stderr; the table repeats it."""
    print(f"... {name}", file=sys.stderr, flush=True)
    arguments = [LARGEST.get(name, size) if size == "large" else size for size in sizes]
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


def read_results() -> list[Figures]:
    """All results, in the order of measurement."""
    files = sorted(RESULTS.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [Figures(**json.loads(path.read_text())) for path in files]


if __name__ == "__main__":
    sys.exit(main())
