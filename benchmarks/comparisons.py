"""S29: a verify against a base whose verdicts are known, compared with the same verify alone.

S30: a report of 10,000 tests, read and kept; against parsing it into a tree. Its memory stands beside it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from benchmarks._harness import compare, judge
from benchmarks._repositories import make
from sandbox import VerifyOptions, Workbench
from sandbox.checks.collected import CollectedResults
from sandbox.checks.report import read_report
from sandbox.store.result_files import save_test_results

TESTS = 10_000
CASES = 200
REPORT = (
    f"i=0; echo '<testsuite>'; while [ $i -lt {CASES} ]; "
    "do i=$((i+1)); echo \"<testcase name='t$i'/>\"; done; echo '</testsuite>'"
)
PROFILE = f"""
label = "Reports"
image = "base"
[[check]]
id = "test"
label = "test"
argv = ["sh", "-c", '''{{ {REPORT}; }} >/report/junit.xml''']
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        differential(folder)
        parsing(folder / "report")


def differential(folder: Path) -> None:
    home = folder / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "generic.toml").write_text(PROFILE)
    remote = make(folder / "remote.git", "small")
    with Workbench(home, allow_file=True, environ={}) as workbench:
        task_id = workbench.create_task(workbench.clone(str(remote)).repository.id).id
        workbench.verify(task_id)
        known = set((home / "repositories" / "verdicts").iterdir())
        workbench.write_file(task_id, "a-new-file", "x\n", None)
        workbench.commit(task_id, "a change")

        def forget() -> None:
            for path in set((home / "repositories" / "verdicts").iterdir()) - known:
                path.unlink()

        def verify(against: str | None) -> Callable[[], object]:
            def run() -> None:
                forget()
                assert workbench.verify(task_id, options=VerifyOptions(against=against)).verified

            return run

        compare("S29 verify against a known base", verify("base"), verify(None), floor_name="verify", target="1.1x")
        workbench.close_task(task_id, delete_worktree=True, discard=True)


def parsing(folder: Path) -> None:
    folder.mkdir()
    failing = '<failure message="assert 1 == 2">tests/test_a.py:12: AssertionError</failure>'
    cases = "".join(
        f'<testcase classname="tests.test_{n % 50}" name="test_{n}" time="0.01">{"" if n % 100 else failing}</testcase>'
        for n in range(TESTS)
    )
    (folder / "junit.xml").write_text(f'<testsuite tests="{TESTS}" failures="{TESTS // 100}">{cases}</testsuite>')

    def product() -> None:
        results = CollectedResults()
        assert read_report(folder, results=results) is not None
        save_test_results(folder, "run", "junit", results.results, complete=results.complete)

    def floor() -> None:
        ElementTree.parse(folder / "junit.xml")  # noqa: S314 - our own file

    compare("S30 report of 10,000 tests, target 500 ms", product, floor, floor_name="ElementTree", target="-")
    body = f"from benchmarks.comparisons import peak_of; peak_of({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", body], check=True, capture_output=True, text=True)
    peak = float(done.stdout)
    judge("S30 the same, memory", [(peak, 100.0)] * 3, floor_name="100 MB", target="1x", unit="MB")


def peak_of(folder: str) -> None:
    """Print by how many MB the peak of this process grows while it reads the report."""
    before = read_peak()
    results = CollectedResults()
    read_report(Path(folder), results=results)
    print((read_peak() - before) / 1024)


def read_peak() -> int:
    """In KiB. Not that of getrusage, which a process inherits from the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
