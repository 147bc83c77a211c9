"""Parse unified diffs, git's and plain ones, as tools and language models write them. Pure: does not apply them.

Theory. Two things mark the end of a hunk: the counts in its header, and the look of its lines. The counts win if the
body agrees with them and ends there, because only they separate a deleted line `-- a/x` from the header of another file
(THREATS J14). If the counts cannot be right, the body continues as long as its lines look like one, and a note says so.
Text around a patch is skipped: mail and chat add it. But a line outside all hunks that starts like a line of a hunk is
refused: it would be lost. The parsed claims are not trusted: a patch is judged by its effect on gated files.
Sources: git-diff(1) "Generating patch text with -p", GNU diffutils "Detailed Unified", behaviour of git 2.39.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandbox.edits.binary_patches import BinaryContent, read_binary
from sandbox.edits.hash_gate import rejection
from sandbox.errors import SandboxError
from sandbox.text import decode_for_display

MAX_HUNKS = 20_000
MAX_LINES = 500_000

_NUMBERED = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_UNNUMBERED = re.compile(rb"@@(?: (?:\.\.\. )?@@(?: .*)?)? *", re.DOTALL)  # `.` never fails
_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index) (.*)"
)
_FOREIGN = {
    b"*** Begin Patch": "This is the format of another tool",
    b"***************": "This is a context diff",
    b"diff --cc ": "This is a combined diff of a merge",
    b"diff --combined ": "This is a combined diff of a merge",
    b"GIT binary patch": "Binary content without a file header",
    b"Binary files ": "The patch says only that a binary file differs",
}
_NAMED_START, _NAMED_END = b"Files ", b" differ"  # of `diff -q`, and of our diffs about files that are too large
_KINDS = {first: first for first in (b" ", b"+", b"-", b"\\")} | {b"": b" ", b"\r": b" "}
"""The kind of a hunk's line, by its first byte. Many tools strip the blank of an empty line."""
_SIGNIFICANT = frozenset(first[:1] for first in (b"diff", b"--", b"+", b"@@", b"```", _NAMED_START, *_FOREIGN))
_VERSION = re.compile(rb"\d+\.\d+")


@dataclass(frozen=True)
class Hunk:
    """Lines of both sides, with terminators. `start`: the line that its header names, if any; `line`: in the patch."""

    line: int
    start: int | None
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    note: str = ""


@dataclass
class PatchSection:
    """The part of a patch for one file. `old`, `new`: text after `---` and `+++`; `git`: after `diff --git`."""

    line: int
    git: bytes | None = None
    old: bytes | None = None
    new: bytes | None = None
    extended: dict[str, bytes] = field(default_factory=dict)
    hunks: list[Hunk] = field(default_factory=list)
    binary: BinaryContent | None = None
    crlf: bool = False


def parse_patch(text: bytes) -> list[PatchSection]:
    """Parse a patch into sections, in order, at least one. Raises: `patch_rejected`, which names the line."""
    complete = text.endswith(b"\n")
    lines = text.split(b"\n")[: -1 if complete else None]
    if len(lines) > MAX_LINES:
        raise rejection(f"A patch may have at most {MAX_LINES} lines")
    sections = _Parser(lines, complete=complete).sections()
    if not sections:
        raise rejection(
            "This is not a patch: no file header was found",
            hint="Send a unified diff: '--- a/PATH', '+++ b/PATH', '@@ -1,3 +1,4 @@', then lines with ' ', '-', '+'.",
        )
    return sections


class _Parser:
    def __init__(self, lines: list[bytes], *, complete: bool) -> None:
        self._lines = lines
        self._complete = complete
        self._at = 0
        self._after_hunk = False
        self._hunks = 0

    def sections(self) -> list[PatchSection]:
        found = []
        while self._at < len(self._lines):
            if self._lines[self._at][:1] not in _SIGNIFICANT:
                self._at += 1
            elif self._line().startswith(b"diff --git "):
                found.append(self._parse_git_section())
            elif self._plain_header(self._at):
                found.append(self._parse_body(PatchSection(self._at + 1)))
            else:
                self._skip_prose()
        return found

    def _line(self, at: int | None = None) -> bytes:
        at = self._at if at is None else at
        return self._lines[at].removesuffix(b"\r") if at < len(self._lines) else b""

    def _plain_header(self, at: int) -> bool:
        return self._line(at).startswith(b"--- ") and self._line(at + 1).startswith(b"+++ ")

    def _skip_prose(self) -> None:
        line = self._line()
        for start, what in _FOREIGN.items():
            if line.startswith(start):
                raise self._error_at(what, hint="Send a unified diff, as from `git diff --binary`.")
        if line.startswith(_NAMED_START) and line.endswith(_NAMED_END):
            raise self._error_at("The patch says only that a file differs", hint="Send a unified diff of its lines.")
        if line.startswith(b"@@"):
            raise self._error_at("A hunk has no file: '--- a/PATH' and '+++ b/PATH' must come before it")
        if line.startswith(b"```") or line in {b"-- ", b"--"}:
            self._after_hunk = False
        elif self._after_hunk and line[:1] in {b"+", b"-"}:
            raise self._error_at("A line looks like part of a hunk but is outside every hunk")
        self._at += 1

    def _parse_git_section(self) -> PatchSection:
        section = PatchSection(self._at + 1, git=self._line().removeprefix(b"diff --git "))
        self._at += 1
        while match := _EXTENDED.fullmatch(self._line()):
            if match[1].decode() in section.extended:
                raise self._error_at("A header is repeated")
            section.extended[match[1].decode()] = match[2]
            self._at += 1
        if self._line().rstrip() == b"GIT binary patch":
            section.binary, self._at = read_binary(self._lines, self._at + 1)
            return section
        return self._parse_body(section)

    def _parse_body(self, section: PatchSection) -> PatchSection:
        if self._plain_header(self._at):
            section.crlf = self._lines[self._at].endswith(b"\r")
            section.old, section.new = self._line()[4:], self._line(self._at + 1)[4:]
            self._at += 2
            while self._line().startswith(b"@@"):
                section.hunks.append(self._parse_hunk())
        self._after_hunk = True
        return section

    def _parse_hunk(self) -> Hunk:
        self._hunks += 1
        if self._hunks > MAX_HUNKS:
            raise rejection(f"A patch may have at most {MAX_HUNKS} hunks")
        header, at = self._line(), self._at
        numbers = _NUMBERED.match(header)
        if numbers is None and _UNNUMBERED.fullmatch(header) is None:
            raise self._error_at("This hunk header cannot be read")
        self._at += 1
        counts = _counts(numbers)
        end = None if counts is None else self._end_by_counts(*counts)
        end = self._end_by_look() if end is None else end
        body = self._lines[self._at : end]
        old, new = self._split_sides(body)
        self._at = end
        note = self._count_note(counts, old, new)
        if not old and not new:
            raise self._error_at("This hunk has no lines", at)
        return Hunk(at + 1, int(numbers[1]) if numbers else None, old, new, note)

    def _end_by_counts(self, old: int, new: int) -> int | None:
        """The end of the body by the counts, or None if they cannot be right."""
        at = self._at
        while old > 0 or new > 0:
            kind = self._kind(at)
            if kind is None:
                return None
            old -= kind in {b" ", b"-"}
            new -= kind in {b" ", b"+"}
            at += 1
        while at < len(self._lines) and self._kind(at) == b"\\":
            at += 1
        return at if (old, new) == (0, 0) and self._may_end(at) else None

    def _kind(self, at: int) -> bytes | None:
        return _KINDS.get(self._lines[at][:1]) if at < len(self._lines) else None

    def _may_end(self, at: int) -> bool:
        """Whether this line may follow a complete hunk."""
        if self._kind(at) is None or not self._line(at) or self._line(at) in {b"-- ", b"--"}:
            return True
        return self._plain_header(at)

    def _end_by_look(self) -> int:
        """The end of the lines that look like a body, without trailing blank lines."""
        at = self._at
        while self._kind(at) is not None and not self._starts_another(at):
            at += 1
        while at > self._at and not self._line(at - 1):
            at -= 1
        return at

    def _starts_another(self, at: int) -> bool:
        if self._lines[at][:1] != b"-":
            return False
        header = self._plain_header(at) and self._line(at + 2).startswith(b"@@")
        signature = self._line(at) in {b"-- ", b"--"} and _VERSION.match(self._line(at + 1)) is not None
        return header or signature

    def _split_sides(self, body: list[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        sides: dict[bytes, list[bytes]] = {b"-": [], b"+": []}
        last = b""
        for offset, line in enumerate(body):
            kind = _KINDS[line[:1]]
            if kind == b"\\":
                self._cut_newline(sides, last, self._at + offset)
                continue
            content = (line[1:] if line[:1] == kind else line) + b"\n"
            for side in (b"-", b"+"):
                if kind in {b" ", side}:
                    self._require_open(sides[side], self._at + offset)
                    sides[side].append(content)
            last = kind
        return tuple(sides[b"-"]), tuple(sides[b"+"])

    def _cut_newline(self, sides: dict[bytes, list[bytes]], last: bytes, at: int) -> None:
        if not last:
            raise self._error_at("A 'no newline' marker has no line before it", at)
        for side in (b"-", b"+"):
            if last in {b" ", side}:
                sides[side][-1] = sides[side][-1].removesuffix(b"\n")

    def _require_open(self, side: list[bytes], at: int) -> None:
        if side and not side[-1].endswith(b"\n"):
            raise self._error_at("A line follows the one marked as the last of the file", at)

    def _count_note(self, counts: tuple[int, int] | None, old: tuple[bytes, ...], new: tuple[bytes, ...]) -> str:
        found = (len(old), len(new))
        if counts is None or counts == found:
            return ""
        cut = self._at >= len(self._lines) and not self._complete
        if cut and (found[0] < counts[0] or found[1] < counts[1]):
            raise self._error_at("The patch ends in the middle of a hunk", self._at - 1)
        return f"the header counts {counts[0]} and {counts[1]} lines; the hunk has {found[0]} and {found[1]}"

    def _error_at(self, what: str, at: int | None = None, hint: str = "") -> SandboxError:
        at = self._at if at is None else at
        line = self._line(at)
        return rejection(what, f"line {at + 1} of the patch: {decode_for_display(line[:200])}", hint)


def _counts(numbers: re.Match[bytes] | None) -> tuple[int, int] | None:
    if numbers is None:
        return None
    old, new = numbers[2], numbers[4]
    return (1 if old is None else int(old), 1 if new is None else int(new))
