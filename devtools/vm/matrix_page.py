"""docs/platforms.md: what was measured on which system, from rows and results. Pure, except `write_page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from devtools.vm.matrix_rows import Column, Matrix
from devtools.vm.row_results import Outcome, RowResult

PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"
_HEAD = """\
# Platforms

`make matrix` writes this page. Each row is a virtual machine made of Debian's packages alone, in which the product ran
as it was in the checkout. **works**: it did what it must, limits and figures included. **refused**: the product
says by name that it does not support this engine, in `sandbox doctor` and before any job starts anything. **failed**:
neither. **not run**: nothing is known. **in part**: some of the column's attacks, named below.

In the row with SELinux the kernel enforces Debian's policy on guests alone: that policy is not made for a whole
system, so what other processes do is only recorded. Two rules of Fedora's policy are added. Guests may start with the
engine's own init, and new files have the categories of their folder, not those of the guest. The column **selinux**
says what was denied to the guests of the columns before it, and shows that SELinux does deny: a folder without a label,
and a whole home without labels.

Speed says nothing here: all machines ran without hardware support (`tcg`), about ten times slower.

A `-` in place of a figure: it was not measured. A peak of memory is missing where the check before had a higher one and
the kernel cannot set it back (before 6.12, as in Debian 12) or lets only root do so.
"""
_BESIDE = Path(__file__).with_name("beside_machines.md")
"""What ran without a machine: written by hand."""
_SHORT = {
    Column.PROCESSES: "pids",
    Column.KILL: "kill",
    Column.UNITS: "units",
    Column.CONTRACT: "contract",
    Column.MAIN_JOB: "job",
    Column.TASK_LIFE: "task",
}


def render_page(matrix: Matrix, results: Mapping[str, RowResult]) -> str:
    """The page as Markdown."""
    parts = [_HEAD, *_summary(matrix, results), "", _BESIDE.read_text(encoding="utf-8").rstrip()]
    for name in matrix.rows:
        parts += ["", f"## {matrix.title(name)}", "", *_details(name, matrix.columns(name), results.get(name))]
    return "\n".join(parts) + "\n"


def write_page(matrix: Matrix, results: Mapping[str, RowResult], path: Path = PAGE) -> None:
    """Replace the page."""
    path.write_text(render_page(matrix, results), encoding="utf-8")


def _summary(matrix: Matrix, results: Mapping[str, RowResult]) -> Iterator[str]:
    yield f"| row | {' | '.join(_SHORT.get(column, column) for column in Column)} |"
    yield f"|---|{'---|' * len(Column)}"
    for name in matrix.rows:
        words = [_word(matrix.columns(name), results.get(name), column) for column in Column]
        yield f"| {matrix.title(name)} | {' | '.join(words)} |"


def _word(columns: tuple[Column, ...], result: RowResult | None, column: Column) -> str:
    if column not in columns:
        return "-"
    cell = result.find(column) if result else None
    if cell is None:
        return "not run"
    word = f"**{cell.outcome}**" if cell.outcome is Outcome.FAILED else cell.outcome
    return f"{word}, in part" if cell.part else word


def _details(name: str, columns: tuple[Column, ...], result: RowResult | None) -> Iterator[str]:
    if result is None:
        yield f"Not run: `make matrix ROWS={name}`."
        return
    yield f"`make matrix ROWS={name}`, {result.date}, Space Sandbox {result.product}, {result.accelerator}."
    yield ""
    yield "| what | seen |"
    yield "|---|---|"
    for what, version in result.versions.items():
        yield f"| {what} | {_escape(version)} |"
    for column in columns:
        cell = result.find(column)
        if cell is not None:
            notes = [cell.part, cell.date if cell.date != result.date else "", cell.commit]
            note = "".join(f" ({_escape(text)})" for text in notes if text)
            yield f"| {column}{note}: {cell.outcome} | {_escape(cell.seen)} |"
    if result.ended:
        yield ""
        yield f"The measurement stopped early: {_escape(result.ended)}."


def _escape(text: str) -> str:
    """For a cell of a table: one line, nothing that is a link, a tag or the end of the cell."""
    plain = " ".join(text.split())
    for character in "\\|<>[]*_`":
        plain = plain.replace(character, f"\\{character}")
    return plain
