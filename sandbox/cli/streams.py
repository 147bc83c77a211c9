"""The standard streams of the command. Whether they are read changes neither what a command does nor its exit code.

- A closed descriptor is opened on `/dev/null`. Else the next file opened gets its number, and children write to it.
- Output is dropped after its reader has ended (`| head`): a run that passed has passed even if its summary was not
  read. click would end the process with 1, which means that a check did not pass.
- A result that cannot be written (a full disk) is an error at the end. Progress that cannot be written is not.
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


class GuardedStream(io.FileIO):
    """Writes to a descriptor and never fails. `last_error`: other than a reader that ended."""

    last_error: OSError | None = None

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
            self.last_error = error
            return memoryview(data).nbytes


def guard_streams(status: StatusLine) -> GuardedStream:
    """Guard the streams of a process that runs only this command. Returns the guarded standard output.

    Each write erases the status line first.
    """
    for descriptor in (_INPUT, _OUTPUT, _ERRORS):
        _open_if_closed(descriptor)
    sys.stdin = sys.stdin or open(_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    output = GuardedStream(_OUTPUT, status)
    sys.stdout = _text_stream(output, sys.stdout)
    sys.stderr = _text_stream(GuardedStream(_ERRORS, status), sys.stderr)
    return output


def _open_if_closed(descriptor: int) -> None:
    """Open `/dev/null` on a closed descriptor: called in ascending order, so the lowest free number is this one."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _text_stream(output: GuardedStream, replaced: TextIO | None) -> TextIO:
    """A text stream like the interpreter's, which is None if its descriptor was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=replaced.encoding if replaced else "utf-8",
        errors=replaced.errors if replaced else "backslashreplace",
        line_buffering=replaced.line_buffering if isinstance(replaced, io.TextIOWrapper) else True,
    )
