"""The standard streams of the command. Whether anybody reads them decides neither what is done nor the exit code.

- A closed descriptor is opened on `/dev/null`: else the next file opened takes its number, and children write into it.
- What a reader who went away (`| head`) does not take is dropped: a run that passed has passed, also when its summary
  found nobody. click would end the process with 1, which says that a check did not pass.
- A result that cannot be written (a full disk) is an error, at the end; progress is never worth failing for.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from sandbox.cli.terminal import StatusLine

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class Output(io.FileIO):
    """Writes to a descriptor and never fails: `lost` says what kept it from writing, other than a reader who left."""

    lost: OSError | None = None

    def __init__(self, descriptor: int, status: StatusLine) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._status = status

    def write(self, data: ReadableBuffer, /) -> int:
        self._status.clear()
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            self.lost = error
            return memoryview(data).nbytes


def guard_streams(status: StatusLine) -> Output:
    """Guard the streams of a process that runs this command only; returns what standard output ends in.

    What is written takes the place of the status line.
    """
    for descriptor in (_INPUT, _OUTPUT, _ERRORS):
        _occupy(descriptor)
    sys.stdin = sys.stdin or open(_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    output = Output(_OUTPUT, status)
    sys.stdout = _text(output, sys.stdout)
    sys.stderr = _text(Output(_ERRORS, status), sys.stderr)
    return output


def _occupy(descriptor: int) -> None:
    """In ascending order the lowest free number is the one that is missing."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _text(output: Output, replaced: TextIO | None) -> TextIO:
    """As the interpreter made it; it was None when its descriptor was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=replaced.encoding if replaced else "utf-8",
        errors=replaced.errors if replaced else "backslashreplace",
        line_buffering=replaced.line_buffering if isinstance(replaced, io.TextIOWrapper) else True,
    )
