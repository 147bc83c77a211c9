"""What the command knows of the terminal: whether there is one, how wide it is, and the one line that is rewritten.

A status line is the last line of a terminal, for what changes while the command works. Whatever is printed takes its
place, also on the other stream: `streams.Output` erases it before each write. So progress is never glued to a result.
Where there is no terminal, on a dumb one and under CI no line is rewritten.
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
    """Whether a person looks at this stream on a terminal that can move its cursor."""
    try:
        return stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("CI")
    except ValueError:  # closed
        return False


def uses_color(environ: Mapping[str, str] = os.environ) -> bool:
    """https://no-color.org: set and not empty."""
    return not environ.get("NO_COLOR")


def count_cells(text: str) -> int:
    """Columns that a text takes on a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """At most so many columns of a text, with an ellipsis where text is left out."""
    if count_cells(text) <= width:
        return text
    kept, left = "", width - 1
    for character in text:
        left -= _width(character)
        if left < 0:
            break
        kept += character
    return kept + "\N{HORIZONTAL ELLIPSIS}"


class StatusLine:
    """The line. Safe to use from several threads. `live` False: there is no such line, and no call writes one."""

    def __init__(self, *, live: bool = False) -> None:
        self.live = live
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Write it anew; the text has no control characters."""
        if self.live:
            with self._lock:
                self._shown = True
                _write(_ERASE + cut(text, max(_columns() - 1, _NARROWEST)))

    def clear(self) -> None:
        """Erase it, if it is there."""
        if self._shown:
            with self._lock:
                self._shown = False
                _write(_ERASE)


def _columns() -> int:
    """Of the terminal behind stderr: stdout may be a pipe."""
    try:
        return os.get_terminal_size(_ERRORS).columns or _USUAL
    except OSError:
        return _USUAL


def _write(text: str) -> None:
    """Past the stream, whose writes erase the line."""
    with suppress(OSError):
        os.write(_ERRORS, text.encode("utf-8", errors="replace"))
