"""docs/platforms.md is what rows and results say."""

from __future__ import annotations

from devtools.vm.matrix_page import PAGE, render_page
from devtools.vm.matrix_rows import Column, load_matrix
from devtools.vm.row_results import Cell, Outcome, RowResult, load_results

MATRIX = load_matrix()
CELL = Cell(column=Column.MEMORY, outcome=Outcome.FAILED, seen="a | b\n<c>", wall_time_s=1.0)


def result(*cells: Cell, ended: str = "") -> RowResult:
    return RowResult(
        date="2026-01-02",
        product="1.2",
        accelerator="tcg",
        wall_time_s=9.0,
        versions={"kernel": "6.12"},
        cells=cells,
        ended=ended,
    )


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render_page(MATRIX, load_results()), "run: python -m devtools.vm --page"


def test_a_row_that_was_never_measured_is_not_run() -> None:
    page = render_page(MATRIX, {})
    assert "works" not in page.partition("| row |")[2]
    assert page.count("Not run: `make matrix") == len(MATRIX.rows)


def test_a_cell_is_one_line_and_inert_with_its_date_and_versions() -> None:
    page = render_page(MATRIX, {"debian-13-root": result(CELL)})
    assert "| memory: failed | a \\| b \\<c\\> |" in page
    assert "2026-01-02, Space Sandbox 1.2, tcg" in page
    assert "| kernel | 6.12 |" in page


def test_what_was_not_reached_is_not_run_and_the_reason_is_shown() -> None:
    page = render_page(MATRIX, {"debian-13-root": result(CELL, ended="its time limit of 5 s was reached")})
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {MATRIX.title('debian-13-root')} |"))
    assert row.count("not run") == len(MATRIX.columns("debian-13-root")) - 1
    assert row.count("**failed**") == 1
    assert "stopped early: its time limit of 5 s was reached" in page


def test_a_row_whose_engine_is_refused_has_two_columns() -> None:
    name = "debian-13-rootless-podman"
    refused = MATRIX.rows[name].model_copy(update={"refused": "Podman"})
    page = render_page(MATRIX.model_copy(update={"rows": {**MATRIX.rows, name: refused}}), {})
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {MATRIX.title(name)} |"))
    assert row.count("not run") == 2


def test_a_cell_says_the_commit_of_the_product() -> None:
    page = render_page(MATRIX, {"debian-13-root": result(CELL.model_copy(update={"commit": "0123abc-dirty"}))})
    assert "| memory (0123abc-dirty): failed |" in page


def test_a_cell_of_some_attacks_or_of_another_day_says_so() -> None:
    some = Cell(
        column=Column.ATTACKS, outcome=Outcome.WORKS, seen="2 held", wall_time_s=1.0, part="2 of 9 K", date="2026-01-01"
    )
    page = render_page(MATRIX, {"debian-13-root": result(some)})
    assert "| works, in part |" in page
    assert "| attacks (2 of 9 K) (2026-01-01): works | 2 held |" in page
