"""Read the index (`.git/index`) of a repository that is not ours, without git: what git last saw of each file.

The file belongs to the owner of the repository, so no check and no gate may rely on it. Format:
gitformat-index(5), versions 2 to 4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
_FLAGS = struct.Struct(">H")
_ASSUME_VALID, _EXTENDED, _STAGE, _SKIP_WORKTREE = 0x8000, 0x4000, 0x3000, 0x4000
_MAX_ENTRIES = 300_000
_MAX_NAME_BYTES = 64 * 1024**2  # all names together: in version 4 one byte of the file can encode a long name


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """`skipped`: not in a sparse checkout, or assumed unchanged. `size` is modulo 2**32, as in git."""

    oid: str
    mtime_ns: int
    ctime_ns: int
    size: int
    skipped: bool


def parse_index(content: bytes, oid_length: int) -> dict[bytes, IndexEntry]:
    """Entries of stage 0 by path; empty if the index cannot be read. `oid_length`: digits of an object id."""
    try:
        magic, version, count = _HEADER.unpack_from(content)
        if magic != b"DIRC" or version not in {2, 3, 4} or count > _MAX_ENTRIES:
            return {}
        return _parse_entries(content, version, count, oid_length // 2)
    except (struct.error, ValueError, IndexError):
        return {}


def _parse_entries(content: bytes, version: int, count: int, width: int) -> dict[bytes, IndexEntry]:
    found: dict[bytes, IndexEntry] = {}
    at, path, left = _HEADER.size, b"", _MAX_NAME_BYTES
    for _ in range(count):
        begin = at
        ctime, ctime_ns, mtime, mtime_ns, *_, size = _STAT.unpack_from(content, at)
        at += _STAT.size
        oid = content[at : at + width].hex()
        at += width
        (flags,) = _FLAGS.unpack_from(content, at)
        at += _FLAGS.size
        more = 0
        if flags & _EXTENDED:
            (more,) = _FLAGS.unpack_from(content, at)
            at += _FLAGS.size
        path, at = _read_compressed_name(content, at, path) if version == 4 else _read_padded_name(content, begin, at)
        left -= len(path)
        if left < 0:
            raise ValueError("the names are too long")
        if not flags & _STAGE:
            skipped = bool(flags & _ASSUME_VALID or more & _SKIP_WORKTREE)
            times = mtime * 10**9 + mtime_ns, ctime * 10**9 + ctime_ns
            found[path] = IndexEntry(oid, *times, size, skipped)
    return found


def _read_padded_name(content: bytes, begin: int, at: int) -> tuple[bytes, int]:
    """Read a name that is padded with one to eight NUL bytes: the entry's length is a multiple of eight."""
    end = content.index(b"\0", at)
    return content[at:end], begin + (end - begin + 8) // 8 * 8


def _read_compressed_name(content: bytes, at: int, before: bytes) -> tuple[bytes, int]:
    """Read a compressed name: how many bytes to drop from the last name (git's offset encoding), and what to append."""
    byte = content[at]
    dropped, at = byte & 0x7F, at + 1
    while byte & 0x80 and dropped <= len(before):
        byte = content[at]
        dropped, at = ((dropped + 1) << 7) | (byte & 0x7F), at + 1
    if dropped > len(before):
        raise ValueError("a name is shorter than what is dropped from it")
    end = content.index(b"\0", at)
    return before[: len(before) - dropped] + content[at:end], end + 1
