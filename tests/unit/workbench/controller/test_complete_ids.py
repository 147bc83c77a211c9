from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli.app import main
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    return Desk(upstream, tmp_path / "home")


def test_records_and_journals_have_whole_ids(desk: Desk) -> None:
    short = desk.task.id.removeprefix("task-")[:8]
    desk.workbench.write_file(short, "new", b"x\n", None)
    desk.workbench.commit(task_id=short, message="by its short name")
    assert desk.workbench.task(short).head_commit != desk.task.head_commit
    assert [entry.operation for entry in desk.workbench.log(desk.task.id)] == ["create", "write", "commit"]


def test_each_command_takes_a_dash(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(desk.home), "--json", "use", desk.task.id[:13]]) == 0
    capsys.readouterr()
    assert main(["--home", str(desk.home), "--json", "task", "show", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["task"]["id"] == desk.task.id
    assert main(["--home", str(desk.home), "task", "fork", "-"]) == 0
    capsys.readouterr()
    assert main(["--home", str(desk.home), "--json", "task", "show", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["task"]["forked_from"] == desk.task.id
