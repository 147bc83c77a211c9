"""The errors that rustc and clippy print for people: a headline, the place below it, and notes up to an empty line.

cargo's `--message-format=json` would take them from who reads the log, so the text is read as it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEAD = re.compile(r"error(?:\[(E\d{4})\])?: (.+)")
_NEXT = re.compile(r"(?:error|warning)(?:\[|:)")
_PLACE = re.compile(r" {0,8}--> ([^\n]{1,400}?):(\d{1,7}):\d{1,7}$")
_LINT = re.compile(r" {1,9}= note: `(?:-[DF] |#\[(?:deny|forbid)\()([\w:-]{1,80})")
_MOST_LINES = 200  # of one error


class RustError(NamedTuple):
    """One error with a place. `rule`: its code, or the name of the lint; empty without any."""

    path: str
    line: str
    rule: str
    text: str


class RustErrorReader:
    """Takes lines one by one. An error is complete with the empty line after it, or with the next one."""

    def __init__(self) -> None:
        self._head: re.Match[str] | None = None
        self._place: re.Match[str] | None = None
        self._lint = ""
        self._lines = 0

    def feed(self, line: str) -> RustError | None:
        """The error that this line completes."""
        if self._head is not None:
            self._lines += 1
            if line.strip() and not _NEXT.match(line) and self._lines < _MOST_LINES:
                self._read(line)
                return None
        return self._begin(_HEAD.match(line))

    def finish(self) -> RustError | None:
        """The error that the end of the output completes."""
        return self._begin(None)

    def _read(self, line: str) -> None:
        if self._place is None:
            self._place = _PLACE.match(line)
        elif not self._lint and (lint := _LINT.match(line)):
            self._lint = lint[1].replace("-", "_")

    def _begin(self, head: re.Match[str] | None) -> RustError | None:
        done = None
        if self._head is not None and self._place is not None:
            rule = self._head[1] or self._lint
            done = RustError(self._place[1], self._place[2], rule, self._head[2])
        self._head, self._place, self._lint, self._lines = head, None, "", 0
        return done
