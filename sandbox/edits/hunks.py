"""Apply hunks to content. Pure.

Theory. The content is exactly what the caller read (its hash was checked). So a wrong line number is a mistake of the
caller, not a sign of another version, and the lines of a hunk decide its place. They must match byte for byte, at the
line in the header or else at exactly one place; a hunk that matches several places is refused. The one exception is
line endings, if the whole file has one kind and the whole hunk the other: editors and models lose them, and the change
can be reversed exactly. So does the replacement of one text.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from sandbox.edits.hash_gate import rejection
from sandbox.edits.near_miss import find_near
from sandbox.edits.unified_diff import Hunk
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import decode_for_display

SEARCH_BUDGET_BYTES = 2 * 1024**3
"""Maximum number of bytes searched for one patch: about one second."""
_LINE_WORK = 100  # to find where a line begins takes as long as to search so many bytes
_MAX_PLACES = 10
_KEPT = "CRLF line endings were kept, as in the file"


class SearchBudget:
    """Counts the bytes that were searched for one patch."""

    def __init__(self, limit: int = SEARCH_BUDGET_BYTES) -> None:
        self._left = limit

    def spend(self, amount: int) -> None:
        """Raises: `quota_exceeded`."""
        self._left -= amount
        if self._left < 0:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED, "This patch takes too long to apply", hint="Split it into several patches."
            )


@dataclass(frozen=True)
class _Replacement:
    """Replace `content[start:end]`. Excludes context, which hunks may share."""

    start: int
    end: int
    text: bytes
    hunk: int


def apply_hunks(content: bytes, hunks: Sequence[Hunk], work: SearchBudget, *, crlf: bool) -> tuple[bytes, list[str]]:
    """Apply all hunks. Returns the new content and notes on corrections. `crlf`: the patch's headers end with CRLF.

    Raises: `patch_rejected`, which names the hunk and the lines where it could be placed.
    """
    work.spend(len(content) + _LINE_WORK * content.count(b"\n"))
    target = _HunkPlacer(content, work, crlf=crlf)
    changes, notes = [], []
    for number, hunk in enumerate(hunks, 1):
        change, remarks = target.place(hunk, number)
        changes.append(change)
        notes += [f"hunk {number}: {remark}" for remark in (hunk.note, *remarks) if remark]
    return _apply_changes(content, sorted(changes, key=lambda c: (c.start, c.end))), notes


def _apply_changes(content: bytes, changes: Sequence[_Replacement]) -> bytes:
    pieces, at, last = [], 0, -1
    for change in changes:
        if change.start < at or change.start == last:
            raise rejection(f"Hunk {change.hunk} overlaps another hunk")
        pieces += [content[at : change.start], change.text]
        at, last = change.end, change.start
    return b"".join([*pieces, content[at:]])


class _HunkPlacer:
    def __init__(self, content: bytes, work: SearchBudget, *, crlf: bool) -> None:
        self._content = content
        self._work = work
        lengths = map(len, content.split(b"\n"))
        self._starts = array("Q", accumulate(map((1).__add__, lengths), initial=0))[:-1]
        self._all_crlf = _has_only_crlf(content)
        self._no_crlf = b"\r\n" not in content
        self._crlf_patch = crlf

    def place(self, hunk: Hunk, number: int) -> tuple[_Replacement, list[str]]:
        if not hunk.old and self._content:
            raise rejection(
                f"Hunk {number} adds lines but has no context to place them",
                f"line {hunk.line} of the patch",
                "Include at least one unchanged or removed line next to the added lines.",
            )
        for variant, remarks in self._variants(hunk):
            needle = b"".join(variant.old)
            if self._matches_at(needle, start := self._header_offset(variant)):
                return self._minimal_change(variant, start, number), remarks
            places = self._search(needle)
            if len(places) > 1:
                raise self._ambiguity_error(hunk, number, places)
            if places:
                return self._minimal_change(variant, places[0], number), [*remarks, self._offset_note(hunk, places[0])]
        raise self._mismatch_error(hunk, number)

    def _variants(self, hunk: Hunk) -> Iterator[tuple[Hunk, list[str]]]:
        """The hunk as written, or with the file's line endings; then without a newline at the end of the file."""
        written = self._with_line_ends(hunk)
        yield from written
        if not self._content or self._content.endswith(b"\n"):
            return
        for variant, remarks in written:
            if variant.old and variant.old[-1].endswith(b"\n"):
                yield _without_last_newline(variant), [*remarks, "the file does not end with a newline"]

    def _with_line_ends(self, hunk: Hunk) -> list[tuple[Hunk, list[str]]]:
        lines = [*hunk.old, *hunk.new]
        ends = sum(line.removesuffix(b"\n").endswith(b"\r") for line in lines)
        windows = ends > 0 and ends + lines.count(b"\n") == len(lines)  # tools strip the CR of an empty line
        if self._all_crlf and (windows or ends == 0):
            return [(hunk, []), (_with_ends(hunk, b"\r\n"), [_KEPT])]
        if self._no_crlf and windows:
            dropped = (_with_ends(hunk, b"\n"), ["CRLF line endings of the patch were changed to LF"])
            return [dropped] if self._crlf_patch else [(hunk, []), dropped]
        return [(hunk, [])]

    def _header_offset(self, hunk: Hunk) -> int:
        """Offset of the line that the header names; -1 if it names none or the file has no such line."""
        line = max(hunk.start or 0, 0 if hunk.start is None else 1)
        return self._starts[line - 1] if 1 <= line <= len(self._starts) else -1

    def _matches_at(self, needle: bytes, start: int) -> bool:
        if start < 0 or not self._content.startswith(needle, start):
            return False
        return needle.endswith(b"\n") or start + len(needle) == len(self._content)

    def _search(self, needle: bytes) -> list[int]:
        """Offsets of up to ten lines where the needle matches."""
        self._work.spend(len(self._content))
        if not needle.endswith(b"\n"):  # only the file's last line has no newline
            start = len(self._content) - len(needle)
            return [start] if start >= 0 and self._at_line_start(start) and self._matches_at(needle, start) else []
        places = [0] if self._content.startswith(needle) else []
        at = self._content.find(b"\n" + needle)
        while at >= 0 and len(places) < _MAX_PLACES:
            places.append(at + 1)
            at = self._content.find(b"\n" + needle, at + 1)
        return places

    def _at_line_start(self, offset: int) -> bool:
        return offset == 0 or self._content[offset - 1 : offset] == b"\n"

    def _minimal_change(self, hunk: Hunk, start: int, number: int) -> _Replacement:
        """The lines that differ. Context at both ends is left out, so that hunks may share it."""
        old, new = hunk.old, hunk.new
        head = _count_common(old, new)
        start += sum(map(len, old[:head]))
        old, new = old[head:], new[head:]
        tail = _count_common(old[::-1], new[::-1])
        old, new = old[: len(old) - tail], new[: len(new) - tail]
        return _Replacement(start, start + sum(map(len, old)), b"".join(new), number)

    def _line_number(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def _offset_note(self, hunk: Hunk, offset: int) -> str:
        named = "no line" if hunk.start is None else f"line {hunk.start}"
        return f"the header names {named}; the hunk matched at line {self._line_number(offset)}"

    def _ambiguity_error(self, hunk: Hunk, number: int, places: Sequence[int]) -> SandboxError:
        lines = [self._line_number(p) for p in places]
        shown_lines = ", ".join(map(str, lines)) + (" and more" if len(places) == _MAX_PLACES else "")
        return rejection(
            f"Hunk {number} matches several places and its header names none of them",
            f"line {hunk.line} of the patch; it matches at lines {shown_lines}",
            "No file was changed. Add context, or correct the line number in the hunk's header.",
            reason="several_matches",
            data={"hunk": number, "lines": lines},
        )

    def _mismatch_error(self, hunk: Hunk, number: int) -> SandboxError:
        """The error with the first line that differs at the line in the header, and with similar places."""
        details = f"line {hunk.line} of the patch"
        offset = self._header_offset(hunk)
        for line in hunk.old if offset >= 0 else ():
            if not self._content.startswith(line, offset):
                found = self._content[offset : offset + 200].partition(b"\n")[0]
                wanted = line[:200].rstrip(b"\n")
                details += (
                    f"; line {self._line_number(offset)} of the file is {_quote(found)}, the hunk has {_quote(wanted)}"
                )
                break
            offset += len(line)
        near = find_near(self._content, b"".join(hunk.old))
        return rejection(
            f"The patch does not match the file: hunk {number} matches no place",
            f"{details}\n{near.describe()}".rstrip("\n"),
            reason="white_space" if near.white_space else "no_match",
            data={"hunk": number, "closest": near.as_data()},
        )


def _quote(line: bytes) -> str:
    return (
        f"'{decode_for_display(line)}'"
        if line.isascii() and line.decode().isprintable()
        else repr(decode_for_display(line))
    )


def _count_common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """The number of equal lines at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _with_ends(hunk: Hunk, newline: bytes) -> Hunk:
    def convert(line: bytes) -> bytes:
        bare = line.removesuffix(b"\n").removesuffix(b"\r")
        return bare + newline if line.endswith(b"\n") else bare

    return replace(hunk, old=tuple(map(convert, hunk.old)), new=tuple(map(convert, hunk.new)))


def _without_last_newline(hunk: Hunk) -> Hunk:
    def cut(lines: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if not lines:
            return lines
        return (*lines[:-1], lines[-1].removesuffix(b"\n").removesuffix(b"\r"))

    return replace(hunk, old=cut(hunk.old), new=cut(hunk.new))


def _has_only_crlf(content: bytes) -> bool:
    """Whether there is a line that ends, and each ends with CRLF."""
    ends = content.count(b"\r\n")
    return ends > 0 and ends == content.count(b"\n")


def match_line_ends(content: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes, tuple[str, ...]]:
    """A text and its replacement with the line endings of the file, and a note if they were changed."""
    both = old + new
    if b"\r" not in both and b"\n" in both and _has_only_crlf(content):
        return old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n"), (_KEPT,)
    if b"\r\n" in old and b"\r\n" not in content and both.count(b"\r\n") == both.count(b"\n"):
        dropped = "CRLF line endings of the text were changed to LF, as in the file"
        return old.replace(b"\r\n", b"\n"), new.replace(b"\r\n", b"\n"), (dropped,)
    return old, new, ()
