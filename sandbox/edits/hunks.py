"""Place hunks on content. Pure.

Theory. The content is exactly what the writer saw (its hash was checked), so a wrong line number is a slip of the
writer and no sign of another version: the lines of a hunk decide where it goes. They have to fit byte for byte, at the
line its header names or else at exactly one place; what fits at several is refused. Line ends are the one exception,
if the whole file has one kind and the whole hunk the other: editors and models lose that, and it can be undone exactly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from sandbox.edits.hash_gate import rejected
from sandbox.edits.near_miss import find_near
from sandbox.edits.unified_diff import Hunk
from sandbox.errors import ErrorCode, SandboxError
from sandbox.text import shown

WORK_BYTES = 2 * 1024**3
"""How many bytes one patch may have us look through: about a second."""
_PLACES = 10


class Work:
    """Counts the bytes looked through for one patch."""

    def __init__(self, limit: int = WORK_BYTES) -> None:
        self._left = limit

    def spend(self, amount: int) -> None:
        """Raises: `quota_exceeded`."""
        self._left -= amount
        if self._left < 0:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED, "This patch takes too long to apply", hint="Send it in several parts."
            )


@dataclass(frozen=True)
class _Change:
    """Replace `content[start:end]`; without the context that hunks may share."""

    start: int
    end: int
    text: bytes
    hunk: int


def apply_hunks(content: bytes, hunks: Sequence[Hunk], work: Work, *, crlf: bool) -> tuple[bytes, list[str]]:
    """Content with all hunks made, and remarks on what was not as written. `crlf`: the patch's own headers end so.

    Raises: `patch_rejected` naming the hunk and the lines where it could go.
    """
    work.spend(len(content))
    target = _Target(content, work, crlf=crlf)
    changes, notes = [], []
    for number, hunk in enumerate(hunks, 1):
        change, remarks = target.place(hunk, number)
        changes.append(change)
        notes += [f"hunk {number}: {remark}" for remark in (hunk.note, *remarks) if remark]
    return _replaced(content, sorted(changes, key=lambda c: (c.start, c.end))), notes


def _replaced(content: bytes, changes: Sequence[_Change]) -> bytes:
    pieces, at, last = [], 0, -1
    for change in changes:
        if change.start < at or change.start == last:
            raise rejected(f"Hunk {change.hunk} changes lines that another hunk changes")
        pieces += [content[at : change.start], change.text]
        at, last = change.end, change.start
    return b"".join([*pieces, content[at:]])


class _Target:
    def __init__(self, content: bytes, work: Work, *, crlf: bool) -> None:
        self._content = content
        self._work = work
        lengths = map(len, content.split(b"\n"))
        self._starts = array("Q", accumulate(map((1).__add__, lengths), initial=0))[:-1]
        ends = content.count(b"\r\n")
        self._all_crlf = ends > 0 and ends == content.count(b"\n")
        self._no_crlf = ends == 0
        self._crlf_patch = crlf

    def place(self, hunk: Hunk, number: int) -> tuple[_Change, list[str]]:
        if not hunk.old and self._content:
            raise rejected(
                f"Hunk {number} adds lines without saying where: it has no context",
                f"line {hunk.line} of the patch",
                "Give at least one unchanged or removed line beside the lines it adds.",
            )
        for variant, remarks in self._variants(hunk):
            needle = b"".join(variant.old)
            if self._fits(needle, start := self._header_offset(variant)):
                return self._change(variant, start, number), remarks
            places = self._search(needle)
            if len(places) > 1:
                raise self._ambiguous(hunk, number, places)
            if places:
                return self._change(variant, places[0], number), [*remarks, self._moved(hunk, places[0])]
        raise self._misfit(hunk, number)

    def _variants(self, hunk: Hunk) -> Iterator[tuple[Hunk, list[str]]]:
        """The hunk as written, or with the file's line ends; then without a newline at the end of the file."""
        written = self._with_line_ends(hunk)
        yield from written
        if not self._content or self._content.endswith(b"\n"):
            return
        for variant, remarks in written:
            if variant.old and variant.old[-1].endswith(b"\n"):
                yield _without_last_newline(variant), [*remarks, "the file has no newline at its end"]

    def _with_line_ends(self, hunk: Hunk) -> list[tuple[Hunk, list[str]]]:
        lines = [*hunk.old, *hunk.new]
        ends = sum(line.removesuffix(b"\n").endswith(b"\r") for line in lines)
        windows = ends > 0 and ends + lines.count(b"\n") == len(lines)  # tools strip an empty line to nothing
        if self._all_crlf and (windows or ends == 0):
            return [(hunk, []), (_with_ends(hunk, b"\r\n"), ["Windows line ends kept, as the file has them"])]
        if self._no_crlf and windows:
            dropped = (_with_ends(hunk, b"\n"), ["Windows line ends of the patch dropped"])
            return [dropped] if self._crlf_patch else [(hunk, []), dropped]
        return [(hunk, [])]

    def _header_offset(self, hunk: Hunk) -> int:
        """Where the header's line begins; -1 when it names none or there is none."""
        line = max(hunk.start or 0, 0 if hunk.start is None else 1)
        return self._starts[line - 1] if 1 <= line <= len(self._starts) else -1

    def _fits(self, needle: bytes, start: int) -> bool:
        if start < 0 or not self._content.startswith(needle, start):
            return False
        return needle.endswith(b"\n") or start + len(needle) == len(self._content)

    def _search(self, needle: bytes) -> list[int]:
        """Up to ten offsets of lines where the needle fits."""
        self._work.spend(len(self._content))
        if not needle.endswith(b"\n"):  # only the file's last line has no newline
            start = len(self._content) - len(needle)
            return [start] if start >= 0 and self._at_line_start(start) and self._fits(needle, start) else []
        places = [0] if self._content.startswith(needle) else []
        at = self._content.find(b"\n" + needle)
        while at >= 0 and len(places) < _PLACES:
            places.append(at + 1)
            at = self._content.find(b"\n" + needle, at + 1)
        return places

    def _at_line_start(self, offset: int) -> bool:
        return offset == 0 or self._content[offset - 1 : offset] == b"\n"

    def _change(self, hunk: Hunk, start: int, number: int) -> _Change:
        """Only what differs: context at both ends stays out, so that hunks may share it."""
        old, new = hunk.old, hunk.new
        head = _shared(old, new)
        start += sum(map(len, old[:head]))
        old, new = old[head:], new[head:]
        tail = _shared(old[::-1], new[::-1])
        old, new = old[: len(old) - tail], new[: len(new) - tail]
        return _Change(start, start + sum(map(len, old)), b"".join(new), number)

    def _line(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def _moved(self, hunk: Hunk, offset: int) -> str:
        named = "names no line" if hunk.start is None else f"names line {hunk.start}"
        return f"header {named}, its lines are at line {self._line(offset)}"

    def _ambiguous(self, hunk: Hunk, number: int, places: Sequence[int]) -> SandboxError:
        lines = [self._line(p) for p in places]
        shown_lines = ", ".join(map(str, lines)) + (" and more" if len(places) == _PLACES else "")
        return rejected(
            f"Hunk {number} fits at several places and its header names none of them",
            f"line {hunk.line} of the patch; it fits at lines {shown_lines}",
            "Nothing was written. Give more context, or the right line in the hunk's header.",
            reason="several_matches",
            data={"hunk": number, "lines": lines},
        )

    def _misfit(self, hunk: Hunk, number: int) -> SandboxError:
        """Shows the first line that differs at the place the header names, and the places that are like the hunk."""
        details = f"line {hunk.line} of the patch"
        offset = self._header_offset(hunk)
        for line in hunk.old if offset >= 0 else ():
            if not self._content.startswith(line, offset):
                found = self._content[offset : offset + 200].partition(b"\n")[0]
                wanted = line[:200].rstrip(b"\n")
                details += (
                    f"; line {self._line(offset)} of the file is {_quoted(found)}, the hunk has {_quoted(wanted)}"
                )
                break
            offset += len(line)
        near = find_near(self._content, b"".join(hunk.old))
        return rejected(
            f"The patch does not fit the content of the file: hunk {number} fits nowhere",
            f"{details}\n{near.describe()}".rstrip("\n"),
            reason="white_space" if near.white_space else "no_match",
            data={"hunk": number, "closest": near.data()},
        )


def _quoted(line: bytes) -> str:
    return f"'{shown(line)}'" if line.isascii() and line.decode().isprintable() else repr(shown(line))


def _shared(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many lines are the same from the front."""
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
