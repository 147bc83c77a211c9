"""Pages under docs/ that a script writes: write them, or say which are not as they should be."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_or_check(arguments: Sequence[str], pages: Mapping[Path, str], stale: Sequence[Path] = ()) -> int:
    """Write the pages and delete the stale ones; with `--check` only name those that differ. Returns the exit code."""
    wrong = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    wrong += stale
    if "--check" in arguments:
        names = sorted(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in wrong)
        sys.stdout.write("".join(f"{name} is out of date, write it again: make reference\n" for name in names))
        return 1 if wrong else 0
    for path in stale:
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0
