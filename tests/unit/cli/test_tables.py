"""Tables on narrow terminals."""

from __future__ import annotations

import re

import pytest

from sandbox.cli.tables import print_table

STORAGE = (
    ["HOLDS", "SIZE", "FILES", "LIMIT", "REMOVED"],
    [
        ["cache clones", "1.2 GiB", "12,345", "4 GiB storage.max_bytes", "when unused for 30 days"],
        ["logs", "3 KiB", "3", "", "with the task"],
    ],
)
RUNS = (
    ["RUN", "CHECK", "VERDICT", "STARTED", "TOOK", "WHERE"],
    [["run-0123456789ab", "test -- -k something", "passed", "2 min ago", "123.4 s", "clean room"]],
)
JOURNALS = (
    ["JOURNAL", "ENTRIES", "STATE", "HEAD"],
    [["task-90e4a982-052d-48de-accc-f2d0725dfe61", "31", "ok", "0123"]],
)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize(
    ("table", "figures"),
    [
        (STORAGE, {"1.2 GiB", "12,345", "3 KiB", "3", "4 GiB"}),
        (RUNS, {"123.4 s", "passed"}),
        (JOURNALS, {"31", "ok"}),
    ],
    ids=["storage", "runs", "journals"],
)
def test_no_number_and_no_verdict_is_cut_and_no_line_is_wider_than_the_terminal(
    columns: int,
    table: tuple[list[str], list[list[str]]],
    figures: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(*table)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert [figure for figure in figures if not re.search(f"  {figure}[ …]", out)] == []
    assert columns < 100 or "…" not in out


def test_the_first_column_is_whole_while_text_can_be_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    print_table(*RUNS)
    header, row = capsys.readouterr().out.splitlines()
    assert row.startswith("run-0123456789ab  ")
    assert "…" in row
    assert header.startswith("RUN ")
