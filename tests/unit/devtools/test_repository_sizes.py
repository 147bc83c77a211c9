"""The table and the plot of costs by the size of a repository."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from benchmarks._log_plot import draw_log_plot
from benchmarks.sizes import write_table

FOUND = {100: {"create": 10.0, "status": 2.0, "map": 50.0}, 57_000: {"create": 15.0, "status": 2.0}}


def test_the_table_has_a_row_for_each_operation_and_says_how_it_grows() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in write_table(FOUND).splitlines()]
    assert rows[0] == ["operation, ms", "100 files", "57,000 files", "largest / smallest"]
    assert rows[2:] == [["create", "10", "15", "1.5x"], ["status", "2", "2", "1x"], ["map", "50", "", ""]]


def test_the_plot_places_larger_values_higher_and_further_right() -> None:
    series = {"create <b>": {100: 10.0, 57_000: 1500.0}, "status": {100: 2.0, 57_000: 2.0}}
    drawn = draw_log_plot("t", "files", "ms", series)
    ElementTree.fromstring(drawn)  # noqa: S314 - what we drew
    lines = [re.findall(r"([\d.]+),([\d.]+)", points) for points in re.findall(r'points="([^"]+)"', drawn)]
    (first, last), (low, high) = ([(float(x), float(y)) for x, y in points] for points in lines)
    assert first[0] < last[0]
    assert first[1] > last[1], "up is towards 0"
    assert low[1] == high[1]
    assert low[0] == first[0]
    assert "&lt;b&gt;" in drawn, "names are escaped"
