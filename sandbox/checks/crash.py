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
FATAL = "Fatal Python error: "
"""What the faulthandler of Python says first; the frames follow, the innermost first."""
_FIRST_CALL = lazy_pattern(r"(?:Current thread|Thread) 0x[0-9a-f]{1,16}(?: \[.{0,80}\])? \(most recent call first\):")
_FRAME = lazy_pattern(r'  File "(?:/workspace/([\w./+-]{1,200})|[^"]{1,400})", line (\d{1,7}) in ([\w<>.]{1,100})')
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


def find_crash_place(run: CheckRun) -> str:
    """Where in the project's own files Python was when it crashed, as it says itself; '' if it does not."""
    lines = iter(run.stderr_tail.splitlines())
    if not any(line.startswith(FATAL) for line in lines) or not any(map(_FIRST_CALL.fullmatch, lines)):
        return ""
    for line in lines:
        if (frame := _FRAME.fullmatch(line)) is None:
            return ""
        if frame[1]:
            return f"{frame[1]}:{frame[2]} ({frame[3]})"
    return ""


def _signal_of_step(line: str) -> str | None:
    if (match := _MAKE.match(line)) is None:
        return None
    return _signal_name(int(match[1]) - _SHELL) if match[1] else _WORDS[match[2]]


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
