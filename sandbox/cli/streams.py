"""The standard streams of the command. Whether they are read changes neither what a command does nor its exit code.

- A closed descriptor is opened on `/dev/null`. Else the next file opened gets its number, and children write to it.
- Output is dropped after its reader has ended (`| head`): a run that passed has passed even if its summary was not
  read. click would end the process with 1, which means that a check did not pass.
- Text has no terminal sequence but those that set colors: each command neutralises what a guest, a worker or a forge
  said where it prints it, and this holds if one field was forgotten (S194). Bytes that were asked for are exact.
  A stream in ASCII becomes one in UTF-8: click would write UTF-8 past it, with a stream of its own (seen: 8.5). What
  another encoding lacks, such as the character that stands for the others in Latin-1, is written as its number.
- In a job of GitHub, no text is a command of the runner (S241, docs/adr/0204). It looks for `::name::` at the start of
  each line, white space aside, and for `##[name]` anywhere in it (actions/runner, ActionCommand.cs), compares by the
  rules of a language, which ignore some characters, and reads both streams at its own pace. So such text is parted by a
  space where it is written. Commands of ours pass.
- A result that cannot be written (a full disk) is an error at the end. Progress that cannot be written is not.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from sandbox.cli.terminal import StatusLine
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


# What sets colors stays, and the ends of lines. In the locale C, \udc9b is written as the byte 9b (surrogateescape).
_CONTROLS = lazy_pattern(r"(\x1b\[[0-9;]{0,32}m|\r\n)|[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udc9f]")

# What is before the last character of `::` at the start of a line, or of `##[`. All but printable ASCII may be ignored.
_COMMANDS = lazy_pattern(r"(?m)^[^\n!-~]*:[^\n -~]*(?=:)|#[^\n -~]*#[^\n -~]*(?=\[)")
# The end of a line that may become one.
_BEGUN = lazy_pattern(r"(?:^[^!-~]*(?::[^ -~]*)?|#[^ -~]*(?:#[^ -~]*)?)\Z")
_BEGUN_WITHOUT = "-"  # the line has begun with other text
_BEGUN_MARKS = lazy_pattern(r"[^:#]")


def is_job_of_github(environ: Mapping[str, str]) -> bool:
    """Whether GitHub's runner reads what a process with these variables prints."""
    return environ.get("GITHUB_ACTIONS") == "true"


class TextStream(io.TextIOWrapper):
    """Replaces control characters in what is written as text, unless `lets_through`.

    `is_for_ascii`: the environment asks for ASCII. `breaks_commands`: GitHub's runner reads what is written.
    """

    lets_through = is_for_ascii = breaks_commands = False
    _begun = ""  # of the last line, what may become a command: '' at its start

    def write(self, text: str, /) -> int:
        shown = text if self.lets_through else _CONTROLS.sub(lambda found: found[1] or "\ufffd", text)
        super().write(self._break_commands(shown) if self.breaks_commands else shown)
        return len(text)

    def end_line(self) -> None:
        """End the line that was begun, if there is one and commands are broken."""
        if self._begun:
            self.write("\n")

    def _break_commands(self, text: str) -> str:
        """Part what the runner would take for a command, also if an earlier write has the first half of it."""
        seen = self._begun + text
        found = _BEGUN.search(seen[seen.rfind("\n") + 1 :])
        # Only the marks are kept: a line of a million spaces in small pieces is not searched again for each of them.
        self._begun = _BEGUN_MARKS.sub("", found[0]) if found else _BEGUN_WITHOUT
        return _COMMANDS.sub(r"\g<0> ", seen)[len(seen) - len(text) :]


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


@contextmanager
def commanding(stream: TextIO) -> Iterator[None]:
    """Whole lines that are written in the body may be commands of ours. They have text of others in the places of data
    alone. A line that was begun ends first.
    """
    if not (isinstance(stream, TextStream) and stream.breaks_commands):
        yield
        return
    stream.end_line()
    stream.breaks_commands = False
    try:
        yield
    finally:
        stream.breaks_commands = True


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


def guard_streams(status: StatusLine, *, breaks_commands: bool = False) -> GuardedStream:
    """Guard the streams of a process that runs only this command. Returns the guarded standard output.

    Each write erases the status line first. `breaks_commands`: as `TextStream` has it.
    """
    for descriptor in (_INPUT, _OUTPUT, _ERRORS):
        _open_if_closed(descriptor)
    sys.stdin = sys.stdin or open(_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    output = GuardedStream(_OUTPUT, status)
    sys.stdout = _text_stream(output, sys.stdout)
    sys.stderr = _text_stream(GuardedStream(_ERRORS, status), sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.breaks_commands = breaks_commands
    return output


def _open_if_closed(descriptor: int) -> None:
    """Open `/dev/null` on a closed descriptor: called in ascending order, so the lowest free number is this one."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _text_stream(output: GuardedStream, replaced: TextIO | None) -> TextStream:
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
