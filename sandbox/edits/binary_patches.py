"""git's binary patches: base 85, deflate, and deltas against the old content.

Sources: gitformat-pack(5) "Deltified representation"; the layout of `git diff --binary` in git 2.39.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sandbox.edits.hash_gate import rejection
from sandbox.errors import ErrorCode, SandboxError

_INSTRUCTION_WORK = 1024  # bytes; two million instructions are a patch's budget, and take two to three seconds
_KIND = re.compile(rb"(literal|delta) (\d{1,12})\r?")


@dataclass(frozen=True)
class BinaryContent:
    """The forward half of a binary patch: whole content or a delta, deflated. `size`: bytes after inflating."""

    delta: bool
    size: int
    deflated: bytes

    def apply(self, before: bytes, limit: int, spend: Callable[[int], None]) -> bytes:
        """The new content. `spend`: is called with the work of each instruction of a delta, in bytes that could be
        searched in the same time. Raises: `patch_rejected`, `quota_exceeded` above `limit` bytes; what `spend` raises.
        """
        if self.size > limit:
            raise too_large_error(limit)
        plain = _inflate(self.deflated, self.size)
        return _apply_delta(before, plain, limit, spend) if self.delta else plain


def read_binary(lines: Sequence[bytes], at: int) -> tuple[BinaryContent, int]:
    """Parse the content that starts at a line; also returns the line after it. The reverse half is skipped."""
    content, at = _read_one(lines, at)
    if at < len(lines) and _KIND.fullmatch(lines[at]):
        _, at = _read_one(lines, at)
    return content, at


def _read_one(lines: Sequence[bytes], at: int) -> tuple[BinaryContent, int]:
    match = _KIND.fullmatch(lines[at]) if at < len(lines) else None
    if match is None:
        raise rejection("This binary patch cannot be read", f"line {at + 1} of the patch")
    pieces = []
    at += 1
    while at < len(lines) and lines[at].strip():
        pieces.append(_decode_line(lines[at].removesuffix(b"\r"), at))
        at += 1
    return BinaryContent(match[1] == b"delta", int(match[2]), b"".join(pieces)), at + 1


def _decode_line(line: bytes, at: int) -> bytes:
    """Decode one line: a letter for the number of bytes (A-Z: 1 to 26, a-z: 27 to 52), then base 85."""
    first, digits = line[0], line[1:]
    length = first - ord("A") + 1 if first <= ord("Z") else first - ord("a") + 27
    try:
        raw = base64.b85decode(digits)
    except ValueError as error:
        raise rejection("This binary patch cannot be read", f"line {at + 1} of the patch") from error
    if not 1 <= length <= 52 or len(digits) % 5 or not len(raw) - 4 < length <= len(raw):
        raise rejection("This binary patch cannot be read", f"line {at + 1} of the patch")
    return raw[:length]


def _inflate(deflated: bytes, size: int) -> bytes:
    """Inflate at most the announced size: a small patch may inflate to any size."""
    machine = zlib.decompressobj()
    try:
        plain = machine.decompress(deflated, size + 1)
    except zlib.error as error:
        raise rejection("This binary patch is damaged", str(error)) from error
    if len(plain) != size or not machine.eof:
        raise rejection("This binary patch is damaged", "its size is not the announced one")
    return plain


def _apply_delta(before: bytes, delta: bytes, limit: int, spend: Callable[[int], None]) -> bytes:
    stream = iter(delta)
    try:
        source, target = _read_number(stream), _read_number(stream)
        if target > limit:
            raise too_large_error(limit)
        if source != len(before):
            raise rejection("The binary patch is for different content", f"{source} bytes, the file has {len(before)}")
        after = _follow(stream, before, target, spend)
    except StopIteration as error:
        raise rejection("This binary patch is damaged", "a delta is incomplete") from error
    if len(after) != target:
        raise rejection("This binary patch is damaged", "a delta's size is not the announced one")
    return after


def _follow(stream: Iterator[int], before: bytes, target: int, spend: Callable[[int], None]) -> bytes:
    """Follow the instructions. A patch of 12 KB can have five million of them, each of which copies one byte."""
    after = bytearray()
    for code in stream:
        spend(_INSTRUCTION_WORK)
        piece = _copy_piece(stream, code, before) if code & 0x80 else bytes(islice(stream, code))
        if not piece or len(after) + len(piece) > target or (code < 0x80 and len(piece) != code):
            raise rejection("This binary patch is damaged", "a delta does not match its content")
        after += piece
    return bytes(after)


def _copy_piece(stream: Iterator[int], code: int, before: bytes) -> bytes:
    offset = sum([next(stream) << 8 * i for i in range(4) if code & 1 << i])
    length = sum([next(stream) << 8 * i for i in range(3) if code & 0x10 << i]) or 0x10000
    piece = before[offset : offset + length]
    if len(piece) != length:
        raise rejection("This binary patch is damaged", "a delta copies from beyond the old content")
    return piece


def _read_number(stream: Iterator[int]) -> int:
    value = shift = 0
    while True:
        byte = next(stream)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 63:
            return value


def too_large_error(limit: int) -> SandboxError:
    """The error for a result that is too large to be read again."""
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED, f"An edited file may have at most {limit} bytes", hint="No file was changed."
    )
