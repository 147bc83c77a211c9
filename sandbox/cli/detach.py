"""Go on in a second process that outlives the command: in a session of its own, with a message for the first one.

The command forks before it has opened anything: no thread, engine connection or lock is duplicated.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

_PR_SET_PDEATHSIG = 1  # prctl(2)
_NO_SIGNAL = 0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Starter:
    """In the process that was started from outside: the other one does the work."""

    pid: int
    _reads: int

    def wait_for_message(self) -> bytes:
        """What the worker reports; empty when it ends without a report. Signals are passed on to it meanwhile."""
        with _passed_on(self.pid), os.fdopen(self._reads, "rb") as stream:
            return stream.read(_MESSAGE_BYTES)

    def wait_for_end(self) -> int:
        """The worker's exit code; 128 and the signal when one ended it."""
        with _passed_on(self.pid):
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else 128 - code


@dataclass(frozen=True)
class Worker:
    """In the process that does the work."""

    starter_pid: int
    _writes: int

    def report(self, message: bytes) -> None:
        """Send the starter its message, on which it ends, and let go of the standard streams that are its."""
        _end_with_parent(_NO_SIGNAL)
        let_go_of_streams()
        with suppress(BrokenPipeError):  # it was killed
            os.write(self._writes, message)
        os.close(self._writes)

    def end_with_starter(self) -> None:
        """Be sent SIGTERM when the starter is killed before it had our report."""
        _end_with_parent(signal.SIGTERM)
        if os.getppid() != self.starter_pid:  # it died before that
            os.kill(os.getpid(), signal.SIGTERM)


def _end_with_parent(number: int) -> None:
    """Be sent this signal when the parent dies; 0: none."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def fork() -> Starter | Worker:
    """Split this process in two. The caller has started no thread."""
    reads, writes = os.pipe()
    starter_pid = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writes)
        return Starter(pid, reads)
    os.close(reads)
    os.setsid()
    return Worker(starter_pid, writes)


def let_go_of_streams() -> None:
    """Nobody reads or writes our standard streams any more: their pipes close at the other end."""
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


@contextmanager
def _passed_on(pid: int) -> Iterator[None]:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
