"""Run every test in parallel, then those that failed once more, alone.

Four test processes share two processors with the containers they start, so a test that waits for the kernel or the
engine can miss a deadline that says nothing about what it claims. Failing alone too, it fails the suite; passing alone,
it is named at the end, for somebody to make it sturdier. Many failures at once are no bad luck: they are not repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROCESSES = 4
MOST_REPEATED = 12
FAILED = 1  # pytest's exit code for failed tests, as opposed to an interrupted run or one that left something behind
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """Run the suite, with more arguments for pytest; its exit code."""
    LAST_FAILED.unlink(missing_ok=True)
    code = _pytest("-n", str(PROCESSES), "--dist", "loadgroup", *arguments)
    failed = sorted(json.loads(LAST_FAILED.read_bytes())) if LAST_FAILED.exists() else []
    if code != FAILED or not 0 < len(failed) <= MOST_REPEATED:
        return code
    _say(f"{len(failed)} failed beside others; once more, alone:", failed)
    code = _pytest("--last-failed", "--last-failed-no-failures=none", "-p", "no:randomly")
    if code == 0:
        _say("passed alone, failed beside others; make them sturdier:", failed)
    return code


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "tests", *arguments], check=False).returncode  # noqa: S603 - ours


def _say(what: str, names: Sequence[str]) -> None:
    sys.stdout.write("\n".join(["", what, *(f"  {name}" for name in names), ""]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
