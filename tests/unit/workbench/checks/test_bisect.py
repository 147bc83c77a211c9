"""A bisection whose rooms are left out: known verdicts, and those whose results of tests are gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.models import BisectQuery, CheckRun, Report, TestOutcome, TestResult, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.result_files import save_test_results
from sandbox.workbench import Workbench
from sandbox.workbench.checks import bisect
from tests.unit.conftest import Upstream
from tests.unit.receipt_samples import made_run

REPORT = Report(tests=2, failures=0, errors=0, skipped=0, failed=())


class KnownRooms:
    """Answers for the clean rooms. All verdicts are cached; of the commits in `lost` no results of tests are kept."""

    def __init__(self, home: Home, repo_id: str, commits: list[str], lost: list[str]) -> None:
        self.home, self.repo_id, self.commits, self.lost = home, repo_id, commits, lost
        self.asked: list[tuple[str, bool]] = []

    def run(self, *request: Any) -> tuple[CheckRun, ...]:
        _services, _repository, commit, _check, _watch, options = request
        self.asked.append((commit, options.cache))
        return (self._answer(commit, cached=options.cache),)

    def _answer(self, commit: str, *, cached: bool) -> CheckRun:
        number = self.commits.index(commit)
        run_id = f"run-{number:031x}{int(cached)}"
        outcome = TestOutcome.FAILED if number >= 2 else TestOutcome.PASSED
        run = made_run("test", Verdict.FAILED, run_id=run_id, cached=cached, report=REPORT)
        if not (cached and commit in self.lost):
            logs = self.home.logs(self.repo_id)
            logs.mkdir(exist_ok=True, parents=True)
            save_run(self.home, self.repo_id, run)
            results = [TestResult(test="one", outcome=outcome), TestResult(test="other", outcome=TestOutcome.FAILED)]
            save_test_results(logs, run_id, "junit", results, complete=True)
        return run


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as found:
        yield found


@pytest.mark.parametrize("lost", [(), (0, 1, 2, 3)], ids=["all results are kept", "gc removed them"])
def test_a_known_verdict_without_its_results_runs_again_and_only_that(
    lost: tuple[int, ...], workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    for number in range(4):
        upstream.write("f", b"%d" % number)
        upstream.commit()
        commits.append(upstream.git("rev-parse", "HEAD").decode().strip())
    repo_id = workbench.clone(str(upstream.root)).repository.id
    rooms = KnownRooms(Home(workbench.home), repo_id, commits, [commits[number] for number in lost])
    monkeypatch.setattr(bisect, "run_commit_check", rooms.run)

    found = workbench.bisect(repo_id, BisectQuery(good=commits[0], check_id="test", test="one"))

    assert found.first_bad is not None
    assert found.first_bad.commit == commits[2]
    again = {commit for commit, cache in rooms.asked if not cache}
    assert again == {one.commit for one in found.judged} if lost else not again
