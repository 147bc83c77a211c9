"""`check wait` after `verify --detach` says the same as `verify`, and ends with the same exit code."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from sandbox.cli.background import exit_code, show_background_run
from sandbox.cli.invocation import Invocation
from sandbox.cli.verification_view import show_verification
from sandbox.models import (
    BackgroundRun,
    CheckComparison,
    FlakyTest,
    TestChange,
    TestChangeKind,
    TreeComparison,
    Verdict,
    Verification,
)
from tests.unit.receipt_samples import TREE, made_run

TASK = "task-00000000-0000-4000-8000-000000000000"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def verification(*, verified: bool = False, no_new_failures: bool | None = None) -> Verification:
    compared = None
    if no_new_failures is not None:
        change = TestChange(test="one", change=TestChangeKind.STILL_FAILING)
        check = CheckComparison(
            check_id="test", before=Verdict.FAILED, after=Verdict.FAILED, by="tests", changes=(change,),
            counts={TestChangeKind.STILL_FAILING: 1}, reasons=() if no_new_failures else ("a reason",),
        )  # fmt: skip
        compared = TreeComparison(
            against="base", commit="c" * 40, tree="b" * 40, checks=(check,), no_new_failures=no_new_failures
        )
    flaky = FlakyTest(check_id="test", test="two", ran=3, failed=1, tree=TREE, first_seen=NOW, last_seen=NOW)
    return Verification(
        runs=(made_run("test", Verdict.PASSED if verified else Verdict.FAILED, task_id=TASK),),
        verified=verified,
        tree=TREE,
        differences=("the task's own container says otherwise",),
        flaky=(flaky,),
        comparison=compared,
        no_new_failures=no_new_failures,
    )


def run_of(found: Verification) -> BackgroundRun:
    return BackgroundRun(
        run_id="run-" + "a" * 32, task_id=TASK, operation="verify", started_at=NOW, state="finished", elapsed_s=2.0,
        verification=found,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (verification(no_new_failures=True), 0),
        (verification(no_new_failures=False), 1),
        (verification(), 1),
        (verification(verified=True), 0),
    ],
    ids=["no new failures", "new failures", "not compared", "verified"],
)
def test_waiting_for_a_verification_says_what_verify_says(
    found: Verification, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(run_of(found)) == code
    with click.Context(click.Command("wait"), obj=Invocation(home=tmp_path)):
        show_verification(found, TASK)
        expected = capsys.readouterr().out
        show_background_run(run_of(found))
        assert capsys.readouterr().out == expected
    assert all(text in expected for text in ("says otherwise", "two"))
    assert ("still failing" in expected) is (found.comparison is not None)
