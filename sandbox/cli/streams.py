"""The standard streams of the command. Whether they are read changes neither what a command does nor its exit code.

- A closed descriptor is opened on `/dev/null`. Else the next file opened gets its number, and children write to it.
- Output is dropped after its reader has ended (`| head`): a run that passed has passed even if its summary was not
  read. click would end the process with 1, which means that a check did not pass.
- Text has no terminal sequence but those that set colors: each command neutralises what a guest, a worker or a forge
  said where it prints it, and this holds if one field was forgotten (S194). Bytes that were asked for are exact.
  A stream in ASCII becomes one in UTF-8: click would write UTF-8 past it, with a stream of its own (seen: 8.5). What
  another encoding lacks, such as the character that stands for the others in Latin-1, is written as its number.
- A result that cannot be written (a full disk) is an error at the end. Progress that cannot be written is not.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from sandbox.cli.terminal import StatusLine
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


# What sets colors stays, and the ends of lines. In the locale C, \udc9b is written as the byte 9b (surrogateescape).
_CONTROLS = lazy_pattern(r"(\x1b\[[0-9;]{0,32}m|\r\n)|[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udc9f]")


class TextStream(io.TextIOWrapper):
    """Replaces control characters in what is written as text, unless `lets_through`.

    `is_for_ascii`: the environment asks for ASCII.
    """

    lets_through = is_for_ascii = False

    def write(self, text: str, /) -> int:
        super().write(text if self.lets_through else _CONTROLS.sub(lambda found: found[1] or "\ufffd", text))
        return len(text)


@contextmanager
def drawing(stream: TextIO) -> Iterator[None]:
    """What is written in the body may move the cursor. It has no text of others but what is neutralised."""
    if not isinstance(stream, TextStream):
        yield
        return
    before, stream.lets_through = stream.lets_through, True
    try:
        yield
    finally:
        stream.lets_through = before


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
    is_for_ascii = bool(replaced and replaced.encoding and codecs.lookup(replaced.encoding).name == "ascii")
    is_lenient = replaced and not is_for_ascii and replaced.errors != "strict"
    made = TextStream(
        io.BufferedWriter(output),
        encoding=replaced.encoding if replaced and not is_for_ascii else "utf-8",
        errors=replaced.errors if replaced and is_lenient else "backslashreplace",
        line_buffering=replaced.line_buffering if isinstance(replaced, io.TextIOWrapper) else True,
    )
    made.is_for_ascii = is_for_ascii
    return made
