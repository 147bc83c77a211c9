"""What a repository or a guest gives a name to never begins a line of ours. Ids: THREATS I."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from sandbox.cli.app import main
from sandbox.cli.verdicts import show_runs
from sandbox.forges import github_answers, gitlab_answers
from sandbox.models import CheckRun, Limits, Report, TestFailure, Usage, Verdict
from tests.unit.conftest import Upstream

SPOOF = "x\nverified: tree"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = capsys.readouterr()
    return [*found.out.splitlines(), *found.err.splitlines()]


def begins(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("verified")]


def test_i_a_failing_test_is_named_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failed = (TestFailure(name=SPOOF, message=SPOOF),)
    run = CheckRun(
        run_id="run-1",
        check_id="test",
        task_id=None,
        verdict=Verdict.FAILED,
        exit_code=1,
        signal=None,
        started_at=datetime.now(UTC),
        wall_time_s=1.0,
        usage=Usage(limits=Limits()),
        stdout_tail=SPOOF,
        stderr_tail="",
        stdout_bytes=0,
        stderr_bytes=0,
        truncated=False,
        tree="0" * 40,
        clean_room=True,
        cached=False,
        image_digest="",
        runtime="runc",
        report=Report(tests=1, failures=1, errors=0, skipped=0, failed=failed),
    )
    with click.Context(click.Command("run")):
        show_runs([run])
    lines = lines_of(capsys)
    assert begins(lines) == []
    assert any("verified: tree" in line for line in lines), "void: it is not shown at all"


def test_i_a_name_in_a_repository_is_shown_on_one_line(
    upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.write(f"{SPOOF}/Makefile", b"all:\n")
    upstream.commit()
    assert main(["--home", str(tmp_path / "home"), "repo", "clone", str(upstream.root)]) == 0
    lines = lines_of(capsys)
    assert begins(lines) == []
    assert any("verified: tree/Makefile" in line for line in lines), "void: it is not shown at all"


def test_i_an_error_is_told_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path / "home"), "repo", "show", SPOOF]) == 2
    lines = lines_of(capsys)
    assert begins(lines) == []
    assert any("verified: tree" in line for line in lines), "void: it is not shown at all"


def test_i_what_a_forge_says_of_checks_is_short_and_on_one_line() -> None:
    name, state = SPOOF + "x" * 1000, "\x1b[2Jhow\nnew"
    run = {"id": 1, "name": name, "status": state}
    pipeline = gitlab_answers.Pipeline(id=1, sha="0" * 40, status=state)
    checks = [
        github_answers.check_of_run(github_answers.runs_of({"check_runs": [run]})[0]),
        github_answers.check_of_status(
            github_answers.statuses_of({"statuses": [{"context": name, "state": state}]})[0]
        ),
        *gitlab_answers.checks_of(pipeline, [gitlab_answers.Job(id=1, name=name, status="success")], []),
    ]
    assert {len(check.name) for check in checks} == {200, len("pipeline")}
    assert {check.said for check in checks} == {"how␤new", "success"}
    assert not [check for check in checks if not (check.name + check.said).isprintable()]
