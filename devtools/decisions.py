"""Write docs/adr/README.md, the list of decisions, from the pages; `--check` only says whether it differs.

A page begins with `# N. Title`. One that no longer holds says so in a line of its own: `Superseded by [20](0020-x.md)`,
and for what part it still holds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.reference import table
from devtools.written import write_or_check

FOLDER = Path(__file__).parent.parent / "docs" / "adr"
INDEX = "README.md"
_NOTE = "<!-- Written by `python -m devtools.decisions`; edit the pages instead. -->\n"
_HEAD = """# Decisions

One page for each decision that may be undone one day: what was decided, why, what was measured, and how to undo it.
A number is given once and never used again. Numbers that are not listed were set aside for decisions that were
not made.
"""
_TITLE = re.compile(r"# (\d+)\. (.+)")
_SUPERSEDED = re.compile(r"(?m)^Superseded by (\[[^\]]+\]\([^)]+\))(.*)$")


@dataclass(frozen=True)
class Decision:
    """One page. `superseded_by`: a link and what is left of the decision; empty while it is in force."""

    number: int
    name: str
    title: str
    superseded_by: str


def read(path: Path) -> Decision:
    """One page. Raises: `ValueError` when it does not begin as pages do."""
    text = path.read_text(encoding="utf-8")
    found = _TITLE.match(text)
    if found is None or not path.name.startswith(f"{int(found[1]):04}-"):
        raise ValueError(f"docs/adr/{path.name} does not begin with its own number and a title: `# N. Title`")
    superseded = _SUPERSEDED.search(text)
    rest = f"{superseded[1]}{superseded[2].rstrip('.')}" if superseded else ""
    return Decision(int(found[1]), path.name, found[2], rest)


def page() -> str:
    """The list as it should be."""
    found = [read(path) for path in sorted(FOLDER.glob("[0-9]*.md"))]
    rows = [
        (f"[{d.number:04}]({d.name})", d.title, "superseded" if d.superseded_by else "in force", d.superseded_by)
        for d in found
    ]
    return _NOTE + _HEAD + table(("number", "decision", "status", "superseded by"), rows)


def main(arguments: Sequence[str]) -> int:
    """Write the list, or with `--check` say whether it is as it should be."""
    return write_or_check(arguments, {FOLDER / INDEX: page()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
