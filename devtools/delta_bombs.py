"""Repositories in small packs that unpack to much: files that differ from many zeros in their last bytes."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOB, _TREE, _COMMIT, _REF_DELTA = 3, 2, 1, 7
_STEP = 0xFFFFFF  # most bytes that one instruction copies


@dataclass(frozen=True)
class DeltaBomb:
    """A repository with one commit on `main`. `oids`: of the zeros, and of each file that differs from them."""

    git_dir: Path
    pack: bytes
    oids: tuple[str, ...]
    tree: str


def make_delta_bomb(git_dir: Path, size: int, endings: Sequence[bytes], *, has_base: bool = True) -> DeltaBomb:
    """A bare repository, of a pack that index-pack has read. Its tree has a file of `size` zeros, and for each ending a
    file of zeros with this ending. Without its base in the tree, who sends the tree has to read each file whole.
    """
    zeros = bytes(size)
    base = _hash_object(b"blob", zeros)
    packed = [_write_entry(_BLOB, zeros)]
    oids = [base]
    for ending in endings:
        delta = _write_delta(size, ending)
        packed.append(_write_header(_REF_DELTA, len(delta)) + bytes.fromhex(base) + zlib.compress(delta))
        oids.append(_hash_object(b"blob", zeros + ending))
    names = [(b"f%03d" % number, oid) for number, oid in enumerate(oids) if has_base or number]
    leaves = b"".join(b"100644 %s\0%s" % (name, bytes.fromhex(oid)) for name, oid in names)
    tree = _hash_object(b"tree", leaves)
    who = b"a <a@example.com> 1700000000 +0000"
    commit = b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (tree.encode(), who, who)
    packed += [_write_entry(_TREE, leaves), _write_entry(_COMMIT, commit)]
    body = b"PACK" + struct.pack(">II", 2, len(packed)) + b"".join(packed)
    pack = body + hashlib.sha1(body, usedforsecurity=False).digest()
    _run_git(git_dir, "init", "-q", "--bare", "-b", "main")
    _run_git(git_dir, "index-pack", "--stdin", content=pack)
    _run_git(git_dir, "update-ref", "refs/heads/main", _hash_object(b"commit", commit))
    return DeltaBomb(git_dir, pack, tuple(oids), tree)


def _run_git(git_dir: Path, *words: str, content: bytes = b"") -> None:
    argv = ["git", f"--git-dir={git_dir}", *words]
    subprocess.run(argv, input=content, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words


def _hash_object(kind: bytes, content: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind, len(content)) + content, usedforsecurity=False).hexdigest()


def _write_entry(kind: int, content: bytes) -> bytes:
    return _write_header(kind, len(content)) + zlib.compress(content)


def _write_header(kind: int, size: int) -> bytes:
    """gitformat-pack(5): three bits of type, then the size, seven bits to a byte."""
    first, size = (kind << 4) | (size & 15), size >> 4
    return bytes([first | 0x80]) + _write_number(size) if size else bytes([first])


def _write_number(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _write_delta(size: int, ending: bytes) -> bytes:
    """Copy the whole base, then add the ending."""
    copies = b""
    for start in range(0, size, _STEP):
        copies += b"\xff" + struct.pack("<I", start) + struct.pack("<I", min(_STEP, size - start))[:3]
    return _write_number(size) + _write_number(size + len(ending)) + copies + bytes([len(ending)]) + ending
