"""The coverage of two trees, compared when both said one; the clean rooms are left out."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.cli.verification_view import show_verification
from sandbox.models import ArtifactList, CheckRun, Coverage, Verification
from sandbox.store.artifact_store import save_list
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import differential, verify
from sandbox.workbench.checks.gate import TreeVerdicts
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run


class CoveredRooms:
    """Answers for the clean rooms. `covered`: lines of eight, of the task's tree and of its base; None: none said."""

    def __init__(self, desk: Desk, *covered: int | None) -> None:
        self.desk, self.covered = desk, covered

    def run(self, *request: Any) -> tuple[CheckRun, ...]:
        owner = request[2].owner
        number = 0 if owner == self.desk.task.id else 1
        run = made_run("test", run_id=f"run-{number:032x}")
        home, lines = Home(self.desk.home), self.covered[number]
        home.logs(owner).mkdir(exist_ok=True)
        save_run(home, owner, run)
        if lines is not None:
            coverage = Coverage(path="lcov.info", lines_covered=lines, lines_total=8)
            save_list(home, owner, ArtifactList(run_id=run.run_id, artifacts=(), coverage=coverage))
        return (run,)


def compare(desk: Desk, monkeypatch: pytest.MonkeyPatch, *covered: int | None) -> Verification:
    for module in (verify, differential):
        monkeypatch.setattr(module, "run_in_rooms", CoveredRooms(desk, *covered).run)
    monkeypatch.setattr(differential, "_save", lambda *_: None)
    monkeypatch.setattr(differential, "_find_verdicts", lambda *_: TreeVerdicts({}))
    return desk.workbench.verify(desk.task.id, None, VerifyOptions(against="base"))


def test_coverage_that_both_trees_said_is_compared_and_decides_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compare(desk, monkeypatch, 5, 6)
    assert found.comparison is not None
    assert (change := found.comparison.checks[0].coverage) is not None
    assert (change.before.lines_covered, change.after.lines_covered, change.points) == (6, 5, -12.5)
    assert found.no_new_failures
    show_verification(found, desk.repo_id)
    assert "coverage      75.00 % -> 62.50 % (-12.50)" in capsys.readouterr().out


@pytest.mark.parametrize("covered", [(5, None), (None, 6)], ids=["not the base", "not here"])
def test_coverage_of_one_tree_alone_is_compared_with_nothing(
    desk: Desk, covered: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compare(desk, monkeypatch, *covered)
    assert found.comparison is not None
    assert found.comparison.checks[0].coverage is None
