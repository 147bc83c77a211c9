"""Find where a test failed in a report: attributes of the case, or `path:line` in the text. Guest data, only a hint.

Pytest, Go and Rust write `tests/test_x.py:5: AssertionError`, `sum_test.go:12: ...`, `src/lib.rs:10:5`; the error was
raised at the last such place. JavaScript's traces have the opposite order.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import one_line

TEXT = 4096
"""How many characters at the end of a failure's text are searched."""

_GUEST_ROOT = "/workspace/"
_LENGTH = 200
_PLACE = lazy_pattern(rf"(?<![\w./+@-])([\w./+@-]{{1,{_LENGTH}}}):(\d{{1,7}})(?!\d)")  # each word is tried once
_FILE = lazy_pattern(r"\.[A-Za-z]\w{0,7}\Z")
_INSTALLED = ("node_modules/", "site-packages/")


def find_location(text: str, file: str = "", line: str = "", folder: str = ".") -> tuple[str | None, int | None]:
    """Return the path, relative to the repository's root, and the line; None for an unknown value. Pure.

    `file`, `line`: the attributes of the test case, which say where the test begins. `folder`: where the check ran.
    """
    named = _relative(one_line(file[: 4 * _LENGTH]), folder)
    places = list(_places(text[-TEXT:], folder))
    own = [place for place in places if place[0] == named] or places
    if own:
        return own[0 if "\n    at " in text else -1]
    number = int(line) if line.isascii() and line.isdigit() and len(line) < 8 else 0
    return named or None, number or None


def _places(text: str, folder: str) -> Iterator[tuple[str, int]]:
    for match in _PLACE.finditer(text):
        path, line = _relative(match[1], folder), int(match[2])
        if line and _FILE.search(path) and not any(part in path for part in _INSTALLED):
            yield path, line


def _relative(path: str, folder: str) -> str:
    """Return the path relative to the repository; empty for a file outside of it, in the guest's system."""
    inside = path.removeprefix(_GUEST_ROOT).removeprefix("./")
    if inside and folder != "." and not path.startswith("/"):
        inside = posixpath.normpath(f"{folder}/{inside}")
    return "" if inside.startswith(("/", "../")) or len(inside) > _LENGTH else inside
