"""Draw docs/architecture.svg, the floors of the package, from its real imports; `--check` only says whether it differs.

The floors and the order of the workbench's rooms are those of the import contracts in pyproject.toml. Boxes are the
packages and modules directly below `sandbox`; grimp reads which of them import which. An arrow that follows from others
is left out (transitive reduction), so that the picture can be read.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import grimp

from devtools.written import write_or_check

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
PACKAGE = "sandbox"
WORKBENCH = "workbench"

Imports = Mapping[str, frozenset[str]]
"""For each box, the boxes that it imports directly."""

_WIDTH, _MARGIN = 800, 16
_BOX_HEIGHT, _FLOOR_GAP, _COLUMN_GAP = 40, 46, 14
_ROOM_HEIGHT, _ROOMS_A_ROW, _PANEL_HEAD = 34, 5, 30
_STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #eaf2fb; stroke: #4573a8; }
  .panel { fill: #f6f8fa; stroke: #4573a8; }
  .room { fill: #fff3d6; stroke: #a87a1e; }
  .import { fill: none; stroke: #57606a; stroke-opacity: .5; marker-end: url(#head); }
  .head { fill: #57606a; }
  text { font: 15px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .note { font-size: 13px; fill: #57606a; text-anchor: start; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    .box { fill: #12263f; stroke: #79a9dd; }
    .panel { fill: #161b22; stroke: #79a9dd; }
    .room { fill: #3a2d0c; stroke: #d8a93c; }
    .import { stroke: #9198a1; }
    .head { fill: #9198a1; }
    text { fill: #f0f6fc; }
    .note { fill: #9198a1; }
  }
"""


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture, in its units; `x`, `y`: the upper left corner."""

    name: str
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The x of its centre."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The y of its lower edge."""
        return self.y + self.height


@cache
def contracts() -> dict[str, Any]:
    """The layer contracts of pyproject.toml by the package that they are about."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [each for each in document["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    return {each.get("containers", [PACKAGE])[0]: each["layers"] for each in layers}


def floors() -> list[list[str]]:
    """The names on each floor, highest first."""
    return [[name.strip().removeprefix(f"{PACKAGE}.") for name in row.split("|")] for row in contracts()[PACKAGE]]


def rooms() -> list[str]:
    """The rooms of the workbench, highest first; the facade is its `__init__`."""
    return ["__init__", *contracts()[f"{PACKAGE}.{WORKBENCH}"]]


@cache
def graph() -> grimp.ImportGraph:
    """All imports of the package."""
    return grimp.build_graph(PACKAGE, cache_dir=None)


def find_imports() -> Imports:
    """Which boxes import which, over all their modules."""
    found: dict[str, set[str]] = {name: set() for floor in floors() for name in floor}
    for module in graph().modules:
        importer = _box_of(module)
        if importer in found:
            imported = {_box_of(name) for name in graph().find_modules_directly_imported_by(module)}
            found[importer] |= (imported & found.keys()) - {importer}
    return {name: frozenset(imported) for name, imported in found.items()}


def _box_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def reduce_imports(imports: Imports) -> Imports:
    """Without each import that another path already implies. Pure; `imports` has no circle."""
    return {
        name: frozenset(
            each for each in direct if not any(each in _reachable(imports, other) for other in direct - {each})
        )
        for name, direct in imports.items()
    }


def _reachable(imports: Imports, name: str) -> set[str]:
    found: set[str] = set()
    waiting = list(imports[name])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += imports[each]
    return found


def picture() -> str:
    """The SVG as it should be."""
    boxes = {box.name: box for box in _place(floors(), len(rooms()))}
    bottom = max(box.bottom for box in boxes.values())
    lines = [line for name, imported in sorted(reduce_imports(find_imports()).items())
             for line in _arrows(boxes, name, imported)]  # fmt: skip
    shapes = [shape for box in boxes.values() for shape in _shapes(box)]
    note = (
        f'<text class="note" x="{_MARGIN}" y="{bottom + 26:g}">An arrow is an import; imports that follow from others '
        "are left out. Drawn by devtools/architecture.py.</text>"
    )
    height = bottom + 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" role="img" '
        'aria-label="The floors of the package: imports point down only">\n'
        "<!-- Written by `python -m devtools.architecture`; edit the code or the contracts instead. -->\n"
        f"<style>{_STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="page" x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1:g}" rx="8"/>\n'
    )
    return head + "\n".join([*lines, *shapes, note]) + "\n</svg>\n"


def _place(names: Sequence[Sequence[str]], count_of_rooms: int) -> Iterator[Box]:
    """A box for each name, floor below floor; the workbench is as wide as the page and holds its rooms."""
    y = float(_MARGIN)
    panel = _PANEL_HEAD + -(-count_of_rooms // _ROOMS_A_ROW) * (_ROOM_HEIGHT + 8)
    for floor in names:
        height = panel if floor == [WORKBENCH] else _BOX_HEIGHT
        width = (_WIDTH - 2 * _MARGIN - (len(floor) - 1) * _COLUMN_GAP) / len(floor)
        width = width if floor == [WORKBENCH] else min(width, 240)
        start = (_WIDTH - len(floor) * width - (len(floor) - 1) * _COLUMN_GAP) / 2
        for column, name in enumerate(floor):
            yield Box(name, start + column * (width + _COLUMN_GAP), y, width, height)
        y += height + _FLOOR_GAP


def _shapes(box: Box) -> Iterable[str]:
    if box.name != WORKBENCH:
        return [*_rectangle("box", box, _label(box.name))]
    title = f'<text x="{box.middle:g}" y="{box.y + 20:g}">workbench: each room imports only rooms after it</text>'
    return [*_rectangle("panel", box, ""), title, *(line for room in _rooms_in(box) for line in _rectangle(
        "room", room, "facade" if room.name == "__init__" else room.name))]  # fmt: skip


def _label(name: str) -> str:
    is_package = bool(graph().find_children(f"{PACKAGE}.{name}"))
    return f"{name}/" if is_package else name


def _rooms_in(panel: Box) -> Iterator[Box]:
    width = (panel.width - 10 * (_ROOMS_A_ROW + 1)) / _ROOMS_A_ROW
    for number, name in enumerate(rooms()):
        row, column = divmod(number, _ROOMS_A_ROW)
        x = panel.x + 10 + column * (width + 10)
        yield Box(name, x, panel.y + _PANEL_HEAD + row * (_ROOM_HEIGHT + 8), width, _ROOM_HEIGHT)


def _rectangle(kind: str, box: Box, label: str) -> Iterator[str]:
    yield (f'<rect class="{kind}" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="5"/>')
    if label:
        yield f'<text x="{box.middle:g}" y="{box.y + box.height / 2 + 5:g}">{escape(label)}</text>'


def _arrows(boxes: Mapping[str, Box], name: str, imported: Iterable[str]) -> Iterator[str]:
    """From the lower edge of one box to the upper edge of each that it imports; spread over the wide panel."""
    above = boxes[name]
    for each in sorted(imported):
        below = boxes[each]
        start, end = _near(above, below.middle), _near(below, above.middle)
        bend = min(40.0, (below.y - above.bottom) / 2)
        curve = f"C{start:.1f} {above.bottom + bend:g} {end:.1f} {below.y - bend:g} {end:.1f} {below.y:g}"
        title = f"<title>{escape(f'{name} imports {each}')}</title>"
        yield f'<path class="import" d="M{start:.1f} {above.bottom:g}{curve}">{title}</path>'


def _near(box: Box, x: float) -> float:
    """Where an arrow meets a box: near `x`, within the middle of the edge."""
    room = box.width / 2 - 14 if box.name == WORKBENCH else box.width / 6
    return min(max(x, box.middle - room), box.middle + room)


def main(arguments: Sequence[str]) -> int:
    """Write the picture, or with `--check` say whether it is as it should be."""
    return write_or_check(arguments, {PICTURE: picture()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
