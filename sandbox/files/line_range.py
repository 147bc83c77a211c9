"""Read a range of a file's lines in one pass over its bytes: the hash of the whole file, the content of the range.

A file may be larger than what we hold in memory, and may be rewritten while it is read. Hash, size, line numbers and
content all come from the bytes of this one pass, so they are consistent whatever the guest does (THREATS H17).
A line ends only at LF, as in git and editors: `str.splitlines` also splits at FF, VT, NEL and U+2028, and line numbers
that differ from git's put a patch in the wrong place.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable

from sandbox.lazy_dataclass import dataclass


@dataclass(frozen=True)
class LineRange:
    """Lines `first` to `last`, 1-based and inclusive. None: to the end."""

    first: int = 1
    last: int | None = None


@dataclass(frozen=True)
class LineRangeContent:
    """For UTF-8 text: whole lines `first` to `last` (`last` < `first`: none). Else: the start of the file, no numbers.

    `sha256`, `size` and `total_lines` describe the whole file. `truncated`: the lines, or the file that is
    no text, have more than `content`. A line longer than the cap is cut between characters.
    """

    sha256: str
    size: int
    content: bytes
    first: int | None
    last: int | None
    total_lines: int | None
    truncated: bool


def read_line_range(chunks: Iterable[bytes], lines: LineRange, cap: int) -> LineRangeContent:
    """Read at most `cap` bytes of some lines. Memory: `cap` bytes and one chunk, for a file of any size.

    For a file that is not text, the content is the first `cap` bytes if all lines were requested, else empty.
    """
    scan = _Scan(lines, cap)
    for chunk in chunks:
        scan.feed(chunk)
    return scan.result()


class _Scan:
    """The state of the pass."""

    def __init__(self, lines: LineRange, cap: int) -> None:
        self._lines, self._cap = lines, cap
        self._digest = hashlib.sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._is_text = True
        self._buffer = bytearray()  # at most one byte more than the cap, to detect that there was more
        self._size = self._newlines = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Process the next bytes of the file."""
        self._digest.update(chunk)
        self._size += len(chunk)
        self._is_text = self._is_text and self._decodes(chunk, final=False)
        newlines = chunk.count(b"\n")
        first, last = self._lines.first, self._lines.last
        start = _offset_after_newlines(chunk, first - 1 - self._newlines, newlines)
        end = len(chunk) if last is None else _offset_after_newlines(chunk, last - self._newlines, newlines)
        self._buffer += chunk[start : min(end, start + self._cap + 1 - len(self._buffer))]
        self._newlines += newlines
        self._tail = chunk[-1:]

    def result(self) -> LineRangeContent:
        """The result, after all bytes were processed."""
        if not (self._is_text and self._decodes(b"", final=True)):
            content = bytes(self._buffer[: self._cap]) if self._lines == LineRange() else b""
            return self._build_result(content, (None, None, None), truncated=len(content) < self._size)
        content = self._whole_lines()
        first = self._lines.first
        last = first - 1 + content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        total = self._newlines + (self._tail not in {b"", b"\n"})
        return self._build_result(content, (first, last, total), truncated=len(content) < len(self._buffer))

    def _whole_lines(self) -> bytes:
        content = bytes(self._buffer)
        if len(content) <= self._cap:
            return content
        content = content[: self._cap]
        ends = content.rfind(b"\n") + 1
        return content[:ends] if ends else content.decode("utf-8", errors="ignore").encode()

    def _build_result(
        self, content: bytes, numbers: tuple[int, int, int] | tuple[None, None, None], *, truncated: bool
    ) -> LineRangeContent:
        digest, (first, last, total) = f"sha256:{self._digest.hexdigest()}", numbers
        return LineRangeContent(digest, self._size, content, first, last, total, truncated)

    def _decodes(self, chunk: bytes, *, final: bool) -> bool:
        try:
            self._decoder.decode(chunk, final)
        except UnicodeDecodeError:
            return False
        return True


def _offset_after_newlines(chunk: bytes, wanted: int, newlines: int) -> int:
    """Offset after the `wanted`-th newline of the chunk; the chunk's length if it has fewer newlines."""
    if wanted > newlines:
        return len(chunk)
    position = 0
    for _ in range(wanted):
        position = chunk.index(b"\n", position) + 1
    return position
