"""A command on a real pseudo-terminal, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 240
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


@dataclass(frozen=True)
class Seen:
    """`raw` is everything that the terminal got; `piped` what went to a stream that is no terminal."""

    code: int
    raw: str
    piped: str

    @property
    def screen(self) -> list[str]:
        """The lines that are there in the end."""
        lines = [""]
        column, rest = 0, self.raw
        while rest:
            if sequence := _SEQUENCE.match(rest):
                if sequence[2] == "K":
                    lines[-1] = lines[-1][:column]
                rest = rest[sequence.end() :]
                continue
            character, rest = rest[0], rest[1:]
            if character == "\n":
                lines.append("")
            elif character == "\r":
                column = 0
                continue
            else:
                lines[-1] = lines[-1][:column].ljust(column) + character + lines[-1][column + 1 :]
                column += 1
                continue
            column = 0
        return lines


@dataclass(frozen=True)
class Terminal:
    """`sandbox --home HOME ...` on a terminal of so many columns; `stdout` False: only stderr is the terminal."""

    home: Path
    columns: int = 80
    stdout: bool = True

    def __call__(self, *arguments: str, **environ: str) -> Seen:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self.columns, 0, 0))
        left_out = ("SANDBOX_", "NO_COLOR", "CI", "COLUMNS", "LINES")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        process = subprocess.Popen(  # noqa: S603 - the command under test
            [sys.executable, "-P", "-m", "sandbox", "--home", str(self.home), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs if self.stdout else subprocess.PIPE,
            stderr=theirs,
            env={**inherited, "TERM": "xterm-256color", **environ},
        )
        os.close(theirs)
        try:
            raw = _read_all(ours)
            piped = process.communicate(timeout=DEADLINE_S)[0] or b""
        finally:
            os.close(ours)
            process.kill()
        return Seen(process.returncode, raw.decode(), piped.decode())


def _read_all(descriptor: int) -> bytes:
    """Until the other end is closed, which on Linux is an error (EIO)."""
    found = b""
    while True:
        try:
            found += os.read(descriptor, 65536)
        except OSError:
            return found
