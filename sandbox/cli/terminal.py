"""The terminal: whether there is one, how wide it is, and its status line.

The status line is the last line of a terminal; it shows progress and is rewritten in place. `streams.GuardedStream`
erases it before each write to stdout or stderr, so that progress is never mixed with a result. There is no status line
without a terminal, on a dumb terminal, and under CI.
"""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

_ERASE = "\r\x1b[K"
_ERRORS = 2
_NARROWEST = 20
_USUAL = 80


def is_interactive(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this stream is a terminal that can move its cursor, outside CI."""
    try:
        return stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
    except ValueError:  # closed
        return False


def uses_color() -> bool:
    """Whether colors are on: not if NO_COLOR is set and not empty (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def count_columns(text: str) -> int:
    """Columns of a text on a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut_to_width(text: str, width: int) -> str:
    """Cut a text to `width` columns; an ellipsis marks the cut."""
    if count_columns(text) <= width:
        return text
    kept, left = "", width - 1
    for character in text:
        left -= _width(character)
        if left < 0:
            break
        kept += character
    return kept + "\N{HORIZONTAL ELLIPSIS}"


class StatusLine:
    """The status line; thread-safe. With `live` False there is none, and no method writes."""

    def __init__(self, *, live: bool = False) -> None:
        self.live = live
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Replace the line. The text must have no control characters."""
        if self.live:
            with self._lock:
                self._shown = True
                _write(_ERASE + cut_to_width(text, max(_terminal_columns() - 1, _NARROWEST)))

    def clear(self) -> None:
        """Erase the line if it is shown."""
        if self._shown:
            with self._lock:
                self._shown = False
                _write(_ERASE)


def _terminal_columns() -> int:
    """Width of the terminal at stderr: stdout may be a pipe."""
    try:
        return os.get_terminal_size(_ERRORS).columns or _USUAL
    except OSError:
        return _USUAL


def _write(text: str) -> None:
    """Write to the descriptor directly: a write to the stream would erase the line."""
    with suppress(OSError):
        os.write(_ERRORS, text.encode("utf-8", errors="replace"))
