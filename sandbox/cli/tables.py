"""Tables on a terminal: no wider than it, with colored states. Imported only when needed: rich loads slowly."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, OverflowMethod
from rich.table import Table
from rich.text import Text

from sandbox.cli.terminal import uses_color
from sandbox.text import one_line

_COLORED_COLUMNS = frozenset({"VERDICT", "STATUS", "STATE", "RESULT", "outcome"})
_COLORS = {
    "passed": "green", "present": "green", "ok": "green", "verified": "green", "merged": "green", "approved": "green",
    "failed": "red", "denied": "red", "missing": "red", "error": "red",
    "working": "cyan", "committed": "cyan", "pushed": "cyan", "pr-open": "cyan", "closed": "dim",
    "held": "green", "GOT THROUGH": "red", "skipped": "cyan",
}  # fmt: skip
_GAP = 2
"""Characters between two columns."""

_NARROW, _NARROW_FIRST = 4, 8
"""Characters of a column that is made narrow, as long as that is enough."""

_FIGURE = re.compile(r"(?:over |[-+])?\d[\d.,:/%x]*(?: of \d+)?(?: [A-Za-z]{1,4})?")
"""A number, also with a unit: `12,345`, `1.2 GiB`, `123.4 s`, `2 of 3`."""

_DEFAULT_COLORS = {"VERDICT": "yellow", "STATE": "yellow", "outcome": "yellow"}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line per row, no wider than the terminal. Text that does not fit is cut. Figures are not: half a number
    looks like another one. Nor is the first column, which users copy: it is folded.
    """
    make_console().print(build_table(headers, rows))


def build_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The table that `print_table` prints."""
    shown = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    widths = _choose_widths(headers, rows, make_console().width)
    for number, header in enumerate(headers):
        kept = number == 0 or header in _COLORED_COLUMNS
        overflow: OverflowMethod = "fold" if number == 0 else "ellipsis"
        shown.add_column(header, no_wrap=kept, overflow=overflow, width=widths[number] if widths else None)
    for row in rows:
        first, *others = map(_cell, headers, row)
        first.no_wrap, first.overflow = False, "fold"
        shown.add_row(first, *others)
    return shown


def _choose_widths(headers: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    """The widths of columns that do not fit a terminal as they are, in characters; empty if they do. Pure.

    Text becomes narrow first, then the headers of figures, then the first column.
    """
    cells = [[row[place] for row in rows] for place in range(len(headers))]
    largest = [max((cell_len(cell) for cell in below), default=0) for below in cells]
    widths = [min(max(cell_len(header), largest[place]), columns) for place, header in enumerate(headers)]
    room = columns - _GAP * (len(headers) - 1)
    if sum(widths) <= room:
        return []
    others = range(1, len(headers))
    states = {place for place in others if headers[place] in _COLORED_COLUMNS}
    numbers = {place for place in others if _has_figures(cells[place])} - states
    texts = {place for place in others} - states - numbers
    begun = {place: max(map(_measure_first_figure, cells[place])) for place in texts}
    for places in (
        {place: max(_NARROW, begun[place]) for place in texts},
        {place: largest[place] for place in numbers},
        {place: max(1, begun[place]) for place in texts},
        dict.fromkeys(texts, 1),
        {0: _NARROW_FIRST},
        dict.fromkeys(states, 1),
    ):
        _shrink(widths, places, sum(widths) - room)
    return widths


def _measure_first_figure(cell: str) -> int:
    """The width that shows the number at the beginning of a text, and a mark that it is cut; 0 without one."""
    found = _FIGURE.match(cell)
    return 0 if found is None else cell_len(found[0]) + 1


def _has_figures(cells: Sequence[str]) -> bool:
    return any(cells) and all(not cell or _FIGURE.fullmatch(cell) for cell in cells)


def _shrink(widths: list[int], least: Mapping[int, int], excess: int) -> None:
    """Take `excess` characters from the columns of `least`, from the widest first, down to what it says."""
    for _ in range(excess):
        wide = [place for place in least if widths[place] > least[place]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def make_console() -> Console:
    """The terminal at stdout."""
    color_system: Literal["auto"] | None = "auto" if uses_color() else None
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, color_system=color_system)


def _cell(header: str, text: str) -> Text:
    style = _COLORS.get(text, _DEFAULT_COLORS.get(header, "")) if header in _COLORED_COLUMNS else ""
    return Text(one_line(text), style, no_wrap=True, overflow="ellipsis")
