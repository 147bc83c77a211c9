"""Run every test in parallel, then those that failed once more, alone.

Several test processes share two processors with the containers they start, so a test that waits for the kernel or the
engine can miss a deadline that says nothing about what it claims. Failing alone too, it fails the suite; passing alone,
it is named at the end, for somebody to make it sturdier. Many failures at once are no bad luck: they are not repeated.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

PROCESSES = 6  # on two cores: a third of the time a test waits for an engine, a server or a timeout
MOST_REPEATED = 12
FAILED = 1  # pytest's exit code for failed tests, as opposed to an interrupted run or one that left something behind
REPORT = Path(".pytest_cache/suite.xml")
GVISOR = "scripts/setup gvisor"
"""What a test says that is skipped because no engine here has gVisor as a runtime."""
_KEPT = ("-o", "tmp_path_retention_count=100")
"""The directories of the suite stay: a slow disk takes eight minutes to delete them."""

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """Run the suite, with more arguments for pytest; its exit code."""
    LAST_FAILED.unlink(missing_ok=True)
    REPORT.unlink(missing_ok=True)
    code = _pytest("-n", str(PROCESSES), "--dist", "loadgroup", f"--junitxml={REPORT}", *arguments)
    code = _repeated(code)
    sys.stdout.write(about_gvisor(skipped_for_gvisor(REPORT)))
    sys.stdout.flush()
    return code


def _repeated(code: int) -> int:
    """The exit code once the tests that failed have run again, alone."""
    failed = sorted(json.loads(LAST_FAILED.read_bytes())) if LAST_FAILED.exists() else []
    if code != FAILED or not 0 < len(failed) <= MOST_REPEATED:
        return code
    _say(f"{len(failed)} failed beside others; once more, alone:", failed)
    code = _pytest("--last-failed", "--last-failed-no-failures=none", "-p", "no:randomly", *_KEPT)
    if code == 0:
        _say("passed alone, failed beside others; make them sturdier:", failed)
    return code


def skipped_for_gvisor(report: Path) -> int:
    """How many tests a JUnit report names that were skipped because gVisor is not here."""
    if not report.exists():
        return 0
    found = ET.parse(report).iter("skipped")  # noqa: S314 - pytest's own
    return sum(GVISOR in f"{skip.get('message', '')}{skip.text or ''}" for skip in found)


def about_gvisor(skipped: int) -> str:
    """What a run without gVisor shows nothing about, and how to include it; nothing to say where none was skipped."""
    if not skipped:
        return ""
    return (
        f"\nThis run shows nothing about gVisor: {skipped} tests that need it were skipped. To include them, run\n"
        f"`{GVISOR}` once as root (it installs runsc and adds it to the engine's daemon.json), then `make test`.\n"
        "With CI=1 `make test` does both, and a test that cannot run is a failure.\n"
    )


def choose_unrun(chromium: str | None) -> str:
    """What only `make browser` runs: with a browser the minutes of pictures and axe-core, without one all of it."""
    return "tests/browser/test_dashboard_pages.py" if chromium else "tests/browser"


def _pytest(*arguments: str) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests",
        f"--ignore={choose_unrun(shutil.which('chromium'))}",
        *arguments,
    ]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - ours


def _say(what: str, names: Sequence[str]) -> None:
    sys.stdout.write("\n".join(["", what, *(f"  {name}" for name in names), ""]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
