"""Where a test failed, as far as a report says: attributes of the case, or `path:line` in the text. Guest data, a hint.

Pytest, Go and Rust write `tests/test_x.py:5: AssertionError`, `sum_test.go:12: ...`, `src/lib.rs:10:5`; the last such
place is where it was raised. JavaScript's traces are the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.text import one_line

TEXT = 4096
"""Characters of a failure's text that are looked at: its end."""

_GUEST_ROOT = "/workspace/"
_LENGTH = 200
_PLACE = re.compile(rf"(?<![\w./+@-])([\w./+@-]{{1,{_LENGTH}}}):(\d{{1,7}})(?!\d)")  # each word is tried once
_FILE = re.compile(r"\.[A-Za-z]\w{0,7}\Z")
_INSTALLED = ("node_modules/", "site-packages/")


def find_location(text: str, file: str = "", line: str = "") -> tuple[str | None, int | None]:
    """Path, relative to the repository's root, and line; None for what is not said. Pure.

    `file`, `line`: what the case itself says, which is where the test begins.
    """
    named = _relative(one_line(file[: 4 * _LENGTH]))
    places = list(_places(text[-TEXT:]))
    own = [place for place in places if place[0] == named] or places
    if own:
        return own[0 if "\n    at " in text else -1]
    number = int(line) if line.isascii() and line.isdigit() and len(line) < 8 else 0
    return named or None, number or None


def _places(text: str) -> Iterator[tuple[str, int]]:
    for match in _PLACE.finditer(text):
        path, line = _relative(match[1]), int(match[2])
        if line and _FILE.search(path) and not any(part in path for part in _INSTALLED):
            yield path, line


def _relative(path: str) -> str:
    """Empty for a file outside the repository, which is the guest's own system."""
    inside = path.removeprefix(_GUEST_ROOT).removeprefix("./")
    return "" if inside.startswith("/") or len(inside) > _LENGTH else inside
