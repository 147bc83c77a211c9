"""A bisection by one test, with known verdicts whose results of tests are gone, or of a shared cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.models import BisectQuery, Check, TestOutcome
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream
from tests.unit.workbench.checks.scripted_rooms import ScriptedRooms, Tests
from tests.unit.workbench.checks.test_verify import PROFILE


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(PROFILE)
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as found:
        yield found


@pytest.mark.parametrize("gone", ["", "removed", "shared"])
@pytest.mark.parametrize("test", ["one", None])
def test_a_known_verdict_without_its_results_runs_again_if_one_test_is_asked_for(
    gone: str, test: str | None, workbench: Workbench, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third of four commits on, the test fails. Controls: results that are kept, and a whole check."""
    commits, trees = [], []
    for number in range(4):
        upstream.write("f", b"one\n%d" % number)
        upstream.commit()
        commits.append(upstream.git("rev-parse", "HEAD").decode().strip())
        trees.append(upstream.git("rev-parse", "HEAD^{tree}").decode().strip())

    def say(tree: str, _check: Check, _number: int) -> Tests:
        return {"one": TestOutcome.FAILED if trees.index(tree) >= 2 else TestOutcome.PASSED}

    rooms = ScriptedRooms(Home(workbench.home), monkeypatch, say)
    repo_id = workbench.clone(str(upstream.root)).repository.id
    query = BisectQuery(good=commits[0], check_id="test", test=test)
    for _ in range(2):  # a failure is known once it was seen twice
        known = workbench.bisect(repo_id, query)
    ran = {tree: len(rooms.ran[tree]) for tree in trees}
    for tree in trees if gone else []:
        rooms.lose_tests(tree)
    if gone == "shared":
        for tree in trees[:2]:
            rooms.forget_verdicts(tree)
        rooms.share_passes(monkeypatch, trees[:2])

    found = workbench.bisect(repo_id, query)

    assert found.first_bad is not None
    assert found.first_bad.commit == commits[2]
    assert [one.outcome for one in found.judged] == [one.outcome for one in known.judged]
    more = 1 if gone and test is not None else 0
    assert {tree: len(rooms.ran[tree]) for tree in trees} == {tree: ran[tree] + more for tree in trees}
