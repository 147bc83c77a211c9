"""Tables on a terminal: no wider than it, with colored states. Imported only when needed: rich loads slowly."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from rich.console import Console
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
_DEFAULT_COLORS = {"VERDICT": "yellow", "STATE": "yellow", "outcome": "yellow"}


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line per row. Cells that do not fit are cut, except the first column, which users copy."""
    make_console().print(build_table(headers, rows))


def build_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The table that `print_table` prints."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, header in enumerate(headers):
        kept = number == 0 or header in _COLORED_COLUMNS
        shown.add_column(header, no_wrap=kept, overflow="fold" if number == 0 else "ellipsis")
    for row in rows:
        first, *others = map(_cell, headers, row)
        first.no_wrap, first.overflow = False, "fold"
        shown.add_row(first, *others)
    return shown


def make_console() -> Console:
    """The terminal at stdout."""
    color_system: Literal["auto"] | None = "auto" if uses_color() else None
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, color_system=color_system)


def _cell(header: str, text: str) -> Text:
    style = _COLORS.get(text, _DEFAULT_COLORS.get(header, "")) if header in _COLORED_COLUMNS else ""
    return Text(one_line(text), style, no_wrap=True, overflow="ellipsis")
