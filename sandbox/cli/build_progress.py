"""Show the progress of image builds: one line per step, and the whole output when a build fails.

The engine's builder prints `Step 3/9 : RUN ...`, what the step prints, and `Successfully tagged ...` at the end.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import field

from sandbox.cli.invocation import note
from sandbox.cli.terminal import StatusLine, cut_to_width
from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import one_line

_BEGIN = lazy_pattern(r"^building (?:.*/)?(?P<name>[^/:]+)(?::.*)?$")
_STEP = lazy_pattern(r"^Step (?P<number>\d+)/(?P<count>\d+) : (?P<command>.*)$")
_END = ("Successfully tagged ", "not built: ")  # the second: of the product, with an error that says why
_LABEL = lazy_pattern(r"^(?P<label>[a-z0-9._-]+) \| (?P<text>.*)$")
_FAILED = "failed: "
_WIDTH = 100
_KEPT_LINES = 20_000


@dataclass
class _Build:
    """A build that has not ended. `step`: the last one that began."""

    image: str
    step: str = ""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    failed: bool = False


class BuildProgress:
    """Gets every line, of several builds at once: lines of one begin with `NAME | `. Safe for threads.

    `verbose` prints each; else only steps are shown, on a terminal in the status line.
    """

    def __init__(self, status: StatusLine, *, verbose: bool = False) -> None:
        self._status, self._verbose = status, verbose
        self._builds: dict[str, _Build] = {}
        self._lock = threading.Lock()

    def add_line(self, line: str) -> None:
        """Take one line, of the product or of a build."""
        line = one_line(line)
        found = _LABEL.match(line)
        label, text = (found["label"], found["text"]) if found else ("", line)
        with self._lock:
            if self._verbose:
                note(line)
            elif begin := _BEGIN.match(text):
                self._builds[label] = _Build(begin["name"])
                note(text)
            elif build := self._builds.get(label):
                self._add_output(label, build, text)
            else:
                note(text)

    def show_log(self, error: SandboxError | None = None) -> None:
        """After a failure: print the output of the build that failed, or of those that did not finish. `error`: printed
        next; lines at the end of the output that it has are left to it.
        """
        shown = {*error.details.splitlines()} if error else set()
        with self._lock:
            failed = [build for build in self._builds.values() if build.failed]
            for build in failed or self._builds.values():
                lines = [*build.log]
                while lines and lines[-1] in shown:
                    lines.pop()
                for line in lines:
                    note(line)

    def _add_output(self, label: str, build: _Build, line: str) -> None:
        if line.startswith(_FAILED):
            build.failed = True
            return
        build.log.append(line)
        if step := _STEP.match(line):
            build.step = f"{build.image}: step {step['number']}/{step['count']} {step['command']}"
            if not self._status.live:
                note(cut_to_width(build.step, _WIDTH))
        elif line.startswith(_END):
            del self._builds[label]
            line = ""
        if self._status.live:
            self._show(line if len(self._builds) == 1 else "")

    def _show(self, line: str) -> None:
        """Show the steps of all builds; of a single one its last line, too."""
        steps = [build.step for build in self._builds.values() if build.step]
        if not steps:
            self._status.clear()
            return
        parts = [cut_to_width(step, _WIDTH // max(2, len(steps))) for step in steps]
        self._status.show("  ".join(parts if not line or _STEP.match(line) else [*parts, line]))
