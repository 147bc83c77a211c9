"""The diff of a task as files with numbered lines, for a page that a person decides by.

Theory. The text of a diff has lines of git and lines of guests. Only the counts in a hunk's header tell them apart, so
they are followed to the letter: a deleted line `-- a/x` begins no file, and a line that contains `@@` no hunk. Nothing
that a guest writes may be missing: a terminal sequence, a form feed or a character without a width is shown as a
symbol, where other surfaces drop it, because what it hides from a reader would still be compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.models import Diff, DiffFile
from sandbox.policy.paths import show_path
from sandbox.text import neutralise

MAX_LINES = 4000
"""Shown on one page."""

MAX_LINE_CHARS = 2000
_HEADER = "diff --git "
_SIDES = ("--- ", "+++ ")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

Piece = tuple[str, str]
LineKind = Literal["same", "added", "removed", "hunk", "note"]
_KINDS: dict[str, LineKind] = {" ": "same", "+": "added", "-": "removed"}


@dataclass(frozen=True)
class DiffLine:
    """`text`: without the sign, as `show_line` shows it. `old`, `new`: the line's number on each side, if it is there.
    `pieces`: classes of `style.css` and text, if it was coloured. `hunk`, `note`: lines of git.
    """

    kind: LineKind
    text: str
    old: int | None = None
    new: int | None = None
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class FileDiff:
    """One file. `file`: None if the diff names a file that its list does not. `notes`: git's lines about it."""

    title: str
    file: DiffFile | None
    notes: tuple[str, ...] = ()
    lines: tuple[DiffLine, ...] = ()


@dataclass(frozen=True)
class DiffView:
    """All files. `is_whole`: every line of the diff is shown."""

    files: tuple[FileDiff, ...]
    is_whole: bool


def read_diff(diff: Diff, most: int = MAX_LINES) -> DiffView:
    """Show at most so many lines, the first ones; all files are there. Pure."""
    by_path = {file.path: file for file in diff.files}
    found: list[FileDiff] = []
    shown, is_whole = 0, not diff.truncated
    for notes, lines in _find_sections(iter(diff.text.split("\n"))):
        kept = tuple(lines[: most - shown])
        shown += len(kept)
        is_whole = is_whole and len(kept) == len(lines)
        path = _find_path(notes)
        said = tuple(show_line(line) for line in notes[1:] if not line.startswith(_SIDES))
        found.append(FileDiff(path, by_path.get(path), said, kept))
    named = {one.title for one in found}
    found += [FileDiff(file.path, file) for file in diff.files if file.path not in named]
    return DiffView(tuple(found), is_whole)


def show_line(text: str) -> str:
    """A line with a symbol in the place of each character that a reader would not see."""
    cut = text[:MAX_LINE_CHARS]
    more = f" ... and {len(text) - MAX_LINE_CHARS} more characters" if len(text) > MAX_LINE_CHARS else ""
    return neutralise(cut.translate(_PICTURES)) + more


def _find_sections(lines: Iterator[str]) -> Iterator[tuple[list[str], list[DiffLine]]]:
    """The header and the body of each file."""
    notes: list[str] = []
    body: list[DiffLine] = []
    for line in lines:
        if line.startswith(_HEADER):
            if notes:
                yield notes, body
            notes, body = [line], []
        elif counts := _HUNK.match(line):
            body += _read_hunk(counts, lines)
        elif line.startswith("\\"):
            body.append(DiffLine("note", show_line(line)))
        elif line:
            notes.append(line)
    if notes:
        yield notes, body


def _read_hunk(counts: re.Match[str], lines: Iterator[str]) -> Iterable[DiffLine]:
    old, old_left, new, new_left = (1 if number is None else int(number) for number in counts.groups())
    hunk = [DiffLine("hunk", show_line(counts.string))]
    while old_left or new_left:
        line = next(lines, None)
        kind = None if line is None else _KINDS.get(line[:1])
        if line is None or kind is None:  # the text was cut off here, or says that a last line has no end
            if line is None or not line.startswith("\\"):
                break
            hunk.append(DiffLine("note", show_line(line)))
            continue
        is_old, is_new = kind != "added", kind != "removed"
        hunk.append(DiffLine(kind, show_line(line[1:]), old if is_old else None, new if is_new else None))
        old, old_left, new, new_left = old + is_old, old_left - is_old, new + is_new, new_left - is_new
    return hunk


def _find_path(notes: list[str]) -> str:
    """The path that a header is about; the line itself if it cannot be read."""
    sides = {line[:4]: _read_name(line[4:]) for line in notes if line.startswith(_SIDES)}
    renamed = next((line for line in notes if line.startswith(("rename to ", "copy to "))), None)
    if renamed is not None:
        return _read_name(renamed.partition(" to ")[2])
    written = next((name for name in (sides.get("+++ "), sides.get("--- ")) if name not in {None, "/dev/null"}), None)
    if written is None:
        rest = notes[0].removeprefix(_HEADER)
        quoted = _QUOTED.match(rest)
        written = _read_name(quoted[0] if quoted else rest[: len(rest) // 2])
    return written.partition("/")[2] or show_line(notes[0])


def _read_name(written: str) -> str:
    quoted = _QUOTED.match(written)
    if quoted is None:
        return written.partition("\t")[0]
    return show_path(_ESCAPE.sub(_unescape, quoted[1].encode("utf-8", "surrogateescape")))


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)]) if len(match[1]) == 3 else bytes([_LETTERS.get(match[1], 0x3F)])
