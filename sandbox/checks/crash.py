"""Detect whether a check, or a program that it ran, crashed. Pure."""

from __future__ import annotations

import signal

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import CheckRun, Verdict

_SHELL = 128  # a shell reports a program that a signal ended as 128 and its number: POSIX, XCU 2.8.2
_OWN_FAULT = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV"})
_MAKE = lazy_pattern(
    r"^g?make(?:\[\d+\])?: \*\*\* \[[^\]]{1,200}\] (?:Error (\d{3})|(Segmentation fault|Aborted)\b.*)$"
)
_WORDS = {"Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT"}


@dataclass(frozen=True)
class Crash:
    """`name`: the signal's name. `subject`: the program that it ended."""

    name: str
    subject: str

    @property
    def own_fault(self) -> bool:
        """Whether an error of the program raised the signal, rather than another process."""
        return self.name in _OWN_FAULT


def find_crash(run: CheckRun) -> Crash | None:
    """Find a crash in the signal or exit status; where make hides them, in make's message about its step."""
    if run.verdict is not Verdict.FAILED:
        return None
    if run.signal is not None:
        return Crash(_signal_name(run.signal) or f"signal {run.signal}", "it")
    if (name := _signal_name((run.exit_code or 0) - _SHELL)) is not None:
        return Crash(name, "a program that it ran")
    lines = (*run.stderr_tail.splitlines(), *run.stdout_tail.splitlines())
    signal_name = next((name for line in lines if (name := _signal_of_step(line))), None)
    return Crash(signal_name, "a program that it ran") if signal_name else None


def _signal_of_step(line: str) -> str | None:
    if (match := _MAKE.match(line)) is None:
        return None
    return _signal_name(int(match[1]) - _SHELL) if match[1] else _WORDS[match[2]]


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
