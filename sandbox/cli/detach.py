"""Continue in a second process that outlives the command. It has its own session and sends the first a message.

The command forks before it opens any resource: no thread, engine connection or lock is duplicated.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sandbox.lazy_dataclass import dataclass

_PR_SET_PDEATHSIG = 1  # prctl(2)
_NO_SIGNAL = 0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Starter:
    """The original process, which the user started. The worker process does the work."""

    pid: int
    _reads: int

    def wait_for_message(self) -> bytes:
        """Wait for the worker's report; empty if it ends without one. Signals are forwarded to it meanwhile."""
        with _forward_signals(self.pid), os.fdopen(self._reads, "rb") as stream:
            return stream.read(_MESSAGE_BYTES)

    def wait_for_end(self) -> int:
        """Wait for the worker's exit code: 128 plus the signal number if a signal ended it."""
        with _forward_signals(self.pid):
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else 128 - code


@dataclass(frozen=True)
class Worker:
    """The forked process, which does the work."""

    starter_pid: int
    _writes: int

    def report(self, message: bytes) -> None:
        """Send the starter the message that it ends on, and release the standard streams."""
        _set_parent_death_signal(_NO_SIGNAL)
        release_streams()
        with suppress(BrokenPipeError):  # the starter was killed
            os.write(self._writes, message)
        os.close(self._writes)

    def end_with_starter(self) -> None:
        """Receive SIGTERM if the starter is killed before it has our report."""
        _set_parent_death_signal(signal.SIGTERM)
        if os.getppid() != self.starter_pid:  # the starter died before prctl
            os.kill(os.getpid(), signal.SIGTERM)


def _set_parent_death_signal(number: int) -> None:
    """Receive this signal when the parent dies; 0: none."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


def fork() -> Starter | Worker:
    """Fork this process. The caller must not have started a thread."""
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


def release_streams() -> None:
    """Replace the standard streams by `/dev/null`, so that the other ends of their pipes see them closed."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def _forward_signals(pid: int) -> Iterator[None]:
    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
