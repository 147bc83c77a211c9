"""The figures of a benchmark come from all of its rounds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import _harness
from benchmarks._harness import judge, markdown_row, read_figures


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_harness, "RESULTS", tmp_path)
    return tmp_path


def test_the_ratio_is_the_median_of_all_rounds_with_quartiles(results: Path) -> None:
    lucky = [(0.7, 1.0)] * 5  # the best third alone would say 0.7
    figures = judge("a call", [*lucky, *[(2.3, 1.0)] * 10], floor_name="floor", target="1.2x")
    assert (figures.ratio_p25, figures.ratio, figures.ratio_p75) == pytest.approx((0.7, 2.3, 2.3))
    assert json.loads((results / "a-call.json").read_text()) == dataclasses.asdict(figures)


def test_one_round_has_no_spread() -> None:
    figures = judge("disk", [(3.0, 2.0)], floor_name="one copy", target="-", unit="MB")
    assert (figures.ratio_p25, figures.ratio, figures.ratio_p75) == (1.5, 1.5, 1.5)


def test_a_row_names_the_files_and_marks_a_missed_target() -> None:
    figures = judge("map, medium", [(2.0, 1.0), (3.0, 1.0)], floor_name="ctags", target="1.5x")
    row = markdown_row(dataclasses.replace(figures, load=1.5))
    assert row == "| map / ctags | 7,000 | 2.5 ms | 1 ms | **2.5x** | 2.25 to 2.75 | 1.5x | 2 | 1.5 |"
    met = judge("map again, medium", [(2.0, 100.0)], floor_name="listing", target="100 ms")
    assert "**" not in markdown_row(met)


def test_a_row_has_no_exponents() -> None:
    slow = markdown_row(judge("create", [(17.83, 40989.5)], floor_name="copy", target="-"))
    assert slow.startswith("| create / copy |  | 17.8 ms | 41 s | 0.000435x | 0.000435 to 0.000435 |")
    large = markdown_row(judge("disk", [(1192.0, 461_436.0)], floor_name="copy", target="-", unit="KiB"))
    assert "| 1,190 KiB | 461,000 KiB |" in large


def test_a_figure_is_found_by_its_name() -> None:
    made = judge("S1 a `call`, warm", [(2.0, 1.0)], floor_name="floor", target="-")
    assert read_figures("S1 a `call`, warm") == made
    assert read_figures("another") is None
