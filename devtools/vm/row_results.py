"""What was measured in a row: written in the machine as lines, kept in `results.json`, shown in docs/platforms.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from devtools.vm.matrix_rows import Column

RESULTS = Path(__file__).with_name("results.json")
MARK = "@matrix "
"""Begins each line of ours: the port also has what others write to it."""


class Outcome(StrEnum):
    """Of one column. `refused`: the product said that it does not work with this engine, and did nothing."""

    WORKS = "works"
    REFUSED = "refused"
    FAILED = "failed"


class _Measured(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cell(_Measured):
    """One column of a row. `seen`: verdicts and figures. `part`: what of the column was measured; empty: all.

    `date`: ISO 8601, set by the host; empty: that of the row. `commit`: of the product, set by the host.
    """

    kind: Literal["cell"] = "cell"
    column: Column
    outcome: Outcome
    seen: str
    wall_time_s: float
    part: str = ""
    date: str = ""
    commit: str = ""


class Facts(_Measured):
    """Versions of what the row ran on, by name."""

    kind: Literal["facts"] = "facts"
    versions: dict[str, str]


class RowResult(_Measured):
    """The last measurement of a row. `date`: ISO 8601. `commit`: as in `Cell`. `accelerator`: `kvm` or `tcg`.

    `ended`: why it stopped early.
    """

    date: str
    commit: str = ""
    product: str
    accelerator: str
    wall_time_s: float
    versions: dict[str, str]
    cells: tuple[Cell, ...]
    ended: str = ""

    def find(self, column: Column) -> Cell | None:
        """The cell of a column; None: it was not reached."""
        return next((cell for cell in self.cells if cell.column is column), None)


def read_lines(text: str) -> tuple[dict[str, str], tuple[Cell, ...]]:
    """Versions and cells from what a machine wrote to its port; a line that was cut off is left out. Pure.

    The last cell of a column counts: one that takes long is written again and again.
    """
    versions: dict[str, str] = {}
    cells: dict[Column, Cell] = {}
    for line in text.splitlines():
        _, mark, document = line.partition(MARK)
        if not mark:
            continue
        try:
            if json.loads(document)["kind"] == "facts":
                versions |= Facts.model_validate_json(document).versions
            else:
                cell = Cell.model_validate_json(document)
                cells[cell.column] = cell
        except (ValueError, ValidationError, KeyError):
            continue
    return versions, tuple(cells.values())


def format_line(measured: Cell | Facts) -> str:
    """One line for the port. Pure."""
    return MARK + measured.model_dump_json()


def load_results(path: Path = RESULTS) -> dict[str, RowResult]:
    """The last measurement of each row that was ever measured, by name."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: RowResult.model_validate(document) for name, document in stored.items()}


def save_results(results: dict[str, RowResult], rows: Iterable[str], path: Path = RESULTS) -> None:
    """Keep the results of rows that are declared."""
    kept = {name: results[name].model_dump(mode="json") for name in rows if name in results}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
