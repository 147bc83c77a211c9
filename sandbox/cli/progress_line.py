"""Show how long checks or builds have been running. On a terminal a status line with the last line of output is
rewritten every second; elsewhere a line is printed after 30 s and then each minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import field

from sandbox.cli.terminal import StatusLine
from sandbox.lazy_dataclass import dataclass
from sandbox.text import neutralise

_TAIL_BYTES = 4096


@dataclass(frozen=True)
class RefreshIntervals:
    """Seconds between two refreshes, until the first printed line, and between further lines."""

    tick_s: float = 1.0
    first_s: float = 30.0
    further_s: float = 60.0


@dataclass
class _RunningCheck:
    text: str
    deadline_s: float
    since: float = field(default_factory=time.monotonic)
    lines: int = 0

    def format_elapsed(self) -> str:
        return f"{time.monotonic() - self.since:.0f} s" + (f" of {self.deadline_s:g} s" if self.deadline_s else "")

    def is_due(self, pace: RefreshIntervals) -> bool:
        return time.monotonic() - self.since >= pace.first_s + self.lines * pace.further_s


class ProgressClock:
    """The checks that are running, or builds. A thread shows them from the start of the first one."""

    def __init__(
        self, status: StatusLine, print_line: Callable[[str], None], pace: RefreshIntervals | None = None
    ) -> None:
        self._status, self._say, self._pace = status, print_line, pace or RefreshIntervals()
        self._running: dict[str, _RunningCheck] = {}
        self._queued = ""
        self._tail = b""
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, name: str, deadline_s: float, text: str = "") -> None:
        """Show a check that starts or waits for its turn. `deadline_s`: 0 for none. `text`: in place of the name."""
        with self._lock:
            self._running[name] = _RunningCheck(text or name, deadline_s)
            self._queued, self._tail = "", b""
        self._refresh()
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, name="clock", daemon=True)
            self._thread.start()

    def describe(self, name: str, text: str) -> None:
        """Show another text in place of the name, from the next second on."""
        with self._lock:
            if name in self._running:
                self._running[name].text = text

    def show_queued(self, text: str) -> None:
        """Show `text` while the check waits. Empty: its turn has come, and its time starts."""
        with self._lock:
            self._queued = text
            for running in self._running.values():
                running.since = time.monotonic()
        self._refresh()

    def add_output(self, chunk: bytes) -> None:
        """Take output of the check."""
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    def end(self, name: str) -> None:
        """Remove a check that has ended."""
        with self._lock:
            self._running.pop(name, None)
            self._tail = b""
        self._status.clear()

    def stop(self) -> None:
        """Stop the thread and erase the status line."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * self._pace.tick_s)
        self._status.clear()

    def _tick(self) -> None:
        while not self._over.wait(self._pace.tick_s):
            self._refresh()

    def _refresh(self) -> None:
        with self._lock:
            if self._status.live and self._running:
                self._status.show(self._line())
            elif not self._queued:
                self._print_due_lines()

    def _line(self) -> str:
        if self._queued:
            return self._queued
        texts = [f"{r.text}: {r.format_elapsed()}" for r in self._running.values()]
        last = find_last_line(self._tail)
        return ", ".join(texts) + (f"  {last}" if last else "")

    def _print_due_lines(self) -> None:
        for running in self._running.values():
            if running.is_due(self._pace):
                running.lines += 1
                self._say(f"still running: {running.text}, {running.format_elapsed()}")


def find_last_line(output: bytes) -> str:
    """Find the last line that is not blank, neutralised and with single spaces."""
    lines = neutralise(output.decode("utf-8", errors="replace")).split("\n")
    return next((text for line in reversed(lines) if (text := " ".join(line.split()))), "")
