"""Show the progress of image builds: one line per step, and the whole output when a build fails.

The engine's builder prints `Step 3/9 : RUN ...`, what the step prints, and `Successfully tagged ...` at the end. Each
line of a pull or a bootstrap says what it does. On a terminal the status line has all that goes on and for how long,
and of a single build the last line; elsewhere `progress_line` says rarely that it goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import field
from types import TracebackType
from typing import Self

from sandbox.cli.invocation import note
from sandbox.cli.progress_line import ProgressClock
from sandbox.cli.terminal import StatusLine, cut_to_width
from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import one_line

_BEGIN = lazy_pattern(r"^(?P<verb>building|bootstrapping|pulling) (?P<reference>[^ ]+?)(?:: .*| with .*)?$")
_STEP = lazy_pattern(r"^(?:Step|STEP) (?P<number>\d+)/(?P<count>\d+) ?: (?P<command>.*)$")
_END = ("Successfully tagged ", "obtained ", "not built: ")  # the last: with an error that says why
_LABEL = lazy_pattern(r"^(?P<label>[a-z0-9._-]+) \| (?P<text>.*)$")
_FAILED = "failed: "
_WIDTH = 100
_KEPT_LINES = 20_000


@dataclass
class _Build:
    """A build that did not end well, or has not ended. `in_steps`: of a Dockerfile; else each line says what goes on.

    `failed`: it said so. `over`: no line of it is to come, as one of those that were built beside it failed.
    """

    reference: str
    in_steps: bool
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    failed: bool = False
    over: bool = False

    @property
    def image(self) -> str:
        """The name without registry and tag."""
        return self.reference.rpartition("/")[2].partition(":")[0]

    def is_end(self, line: str) -> bool:
        """Whether it ends with this line. What it prints may look like one, but not name this image."""
        return line.startswith(_END) and line.endswith(self.reference)


class BuildProgress:
    """Gets every line, of several builds at once: lines of one begin with `NAME | `. Safe for threads.

    `verbose` prints each; else only steps are shown, on a terminal in the status line. At its end the `with` block
    shows the log of a build that failed, and ends the status line. What was printed is not repeated in the details of
    the error that ends the block, unless that becomes a `document`.
    """

    def __init__(self, status: StatusLine, *, verbose: bool = False, document: bool = False) -> None:
        self._status, self._verbose, self._document = status, verbose, document
        self._printed: deque[str] = deque(maxlen=_KEPT_LINES)
        self._builds: dict[str, _Build] = {}
        self._lock = threading.Lock()
        self._clock = ProgressClock(status, note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.stop()
        if error is None or isinstance(error, SandboxError):
            self.show_log(error)
        if isinstance(error, SandboxError) and self._printed and not self._document:
            raise error.with_details(self._find_unprinted(error.details)) from error

    def _find_unprinted(self, details: str) -> str:
        printed = set(self._printed)
        return "\n".join(line for line in details.splitlines() if one_line(line) not in printed)

    def add_line(self, line: str) -> None:
        """Take one line, of the product or of a build."""
        line = one_line(line)
        found = _LABEL.match(line)
        label, text = (found["label"], found["text"]) if found else ("", line)
        with self._lock:
            build = self._builds.get(label)
            if self._verbose:
                self._printed.extend((line, text))
                note(line)
            elif build and not build.over:
                self._add_output(label, build, text)
            elif begin := _BEGIN.match(text):
                self._builds[label] = begun = _Build(begin["reference"], begin["verb"] == "building")
                note(text)
                self._clock.begin(label, 0, begun.image)
            elif not (build and label):  # else a last word of one that was stopped
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
        if line == f"{_FAILED}{build.reference}":
            build.failed = True
            for each, stopped in self._builds.items():  # those beside it end at their next line, without a word
                stopped.over = True
                self._clock.end(each)
            return
        if build.is_end(line):
            del self._builds[label]
            self._clock.end(label)
            return
        build.log.append(line)
        if step := _STEP.match(line):
            text = f"{build.image}: step {step['number']}/{step['count']} {step['command']}"
            if not self._status.live:
                note(cut_to_width(text, _WIDTH))
        elif build.in_steps:
            if len(self._builds) == 1:
                self._clock.add_output(f"{line}\n".encode())
            return
        else:
            text = f"{build.image}: {line}"
        self._clock.describe(label, cut_to_width(text, _WIDTH // max(2, len(self._builds))))
