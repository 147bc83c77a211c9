"""`sandbox task log`: the newest operations, and that there are older ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli.app import main
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.long_journal import make_entry, write_journal


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


@pytest.mark.parametrize(
    ("written", "options", "shown"),
    [(1001, (), 1000), (1000, (), 1000), (5, ("--limit", "2"), 2), (5, ("--limit", "5"), 5), (5, ("--limit", "9"), 5)],
)
def test_the_newest_operations_are_shown_oldest_first(
    desk: Desk, capsys: pytest.CaptureFixture[str], written: int, options: tuple[str, ...], shown: int
) -> None:
    journal = desk.home / "repositories" / "journal" / f"{desk.task.id}.jsonl"
    write_journal(journal, map(make_entry, range(written)))
    assert main(["--home", str(desk.home), "task", "log", desk.task.id, *options, "--json"]) == 0
    out, err = capsys.readouterr()
    entries = json.loads(out)["entries"]
    assert [entry["operation"] for entry in entries] == [f"operation-{n}" for n in range(written - shown, written)]
    assert ("older operations are left out" in err) == (shown < written)
    assert (f"sandbox --home {desk.home} audit export --task {desk.task.id}" in err) == (shown < written)
