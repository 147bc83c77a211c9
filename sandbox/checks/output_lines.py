"""The lines of recorded output, for what reads test results from them. Guest data: bounded in length and in time.

The readers are linear, but an output may have 200 MB of lines that a guest chose for them. So what reads one output, or
the reports of one run, shares a budget of processor time: how busy the host is must not change what a run says.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from sandbox.text import neutralise

LINE_BYTES = 4096
READING_S = 30.0
"""Processor time for one output, the reports of one run, or the programs of one release: 200 MB of what runners of
tests print took 6 to 23 s, 20 MB up to 2.3 s, and 20 MB of the slowest reports 15 s.
"""

_BETWEEN_LOOKS = 16  # lines: to ask for the time takes as long as to read a short one


class ReadingTime:
    """What is left of the time to read. `is_over`: there was none before the end."""

    def __init__(self, seconds: float = READING_S) -> None:
        self._ends_at = time.thread_time() + seconds
        self.is_over = False

    @property
    def left_s(self) -> float:
        """What is left of it, in seconds; 0 or less for none."""
        return self._ends_at - time.thread_time()

    def look(self) -> bool:
        """Whether the time is over. Call it before what is to be read next."""
        self.is_over = self.left_s < 0
        return self.is_over

    def limit(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as long as there is time, which the work on them takes as well."""
        for number, line in enumerate(lines):
            if number % _BETWEEN_LOOKS == 0 and self.look():
                return
            yield line


def read_lines_of(log: Path) -> Iterator[str]:
    """The lines of a log without their ends; of a longer one, pieces of `LINE_BYTES`."""
    with log.open("rb") as file:
        while line := file.readline(LINE_BYTES):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield neutralise(text) if "\x1b" in text else text


def read_beginnings(file: TextIO) -> Iterator[str]:
    """The lines of a file, each up to `LINE_BYTES` characters: the rest of a longer one is left out."""
    is_rest = False
    while part := file.readline(LINE_BYTES):
        if not is_rest:
            yield part
        is_rest = not part.endswith("\n")
