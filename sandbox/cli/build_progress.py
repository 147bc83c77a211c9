"""Show the progress of image builds: one line per step, and the whole output when a build fails.

The engine's builder prints `Step 3/9 : RUN ...`, what the step prints, and `Successfully tagged ...` at the end.
"""

from __future__ import annotations

import re
from collections import deque

from sandbox.cli.invocation import note
from sandbox.cli.terminal import StatusLine, cut_to_width
from sandbox.text import one_line

_BEGIN = re.compile(r"^building (?:.*/)?(?P<name>[^/:]+)(?::.*)?$")
_STEP = re.compile(r"^Step (?P<number>\d+)/(?P<count>\d+) : (?P<command>.*)$")
_END = ("Successfully tagged ", "not built: ")  # the second: of the product, with an error that says why
_WIDTH = 100
_KEPT_LINES = 20_000


class BuildProgress:
    """Gets every line. `verbose` prints each; else only steps are shown, on a terminal in the status line."""

    def __init__(self, status: StatusLine, *, verbose: bool = False) -> None:
        self._status, self._verbose = status, verbose
        self._image = ""
        self._step = ""
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)

    def add_line(self, line: str) -> None:
        """Take one line, of the product or of the build."""
        line = one_line(line)
        if self._verbose:
            note(line)
        elif begin := _BEGIN.match(line):
            self._image, self._step = begin["name"], ""
            self._log.clear()
            note(line)
        elif not self._image:
            note(line)
        else:
            self._add_output(line)

    def show_log(self) -> None:
        """After a failure: print the output of the build that did not finish."""
        for line in self._log:
            note(line)

    def _add_output(self, line: str) -> None:
        self._log.append(line)
        if step := _STEP.match(line):
            self._step = f"{self._image}: step {step['number']}/{step['count']} {step['command']}"
            if self._status.live:
                self._status.show(self._step)
            else:
                note(cut_to_width(self._step, _WIDTH))
        elif line.startswith(_END):
            self._image = ""
            self._log.clear()
            self._status.clear()
        elif self._status.live:
            self._status.show(f"{cut_to_width(self._step, _WIDTH // 2)}  {line}")
