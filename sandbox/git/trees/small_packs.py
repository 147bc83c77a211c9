"""Give git a few new objects as one pack: `unpack-objects` stores each in the clone; of more than ten, `index-pack`
stores the pack; a look reads the pack itself.

Theory. A pack is a header, each object deflated behind its type and size, and a hash of all that (gitformat-pack(5)).
git computes the id of each object from its bytes, with its detection of SHA-1 collisions, which Python's hash lacks.
`fast-import` does the same with two processes: it starts `unpack-objects` itself. Each object is read back afterwards
(`_require_stored`), so no answer of git has to be believed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git.failures import describe_storage_failure
from sandbox.git.process import MOST_LOOSE, Git
from sandbox.git.trees.loose_objects import LooseObjects
from sandbox.git.trees.object_reader import ObjectReader

_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3}
_VERSION = 2
_LEVEL = 1  # git deflates again, by its own configuration


class SmallPack:
    """Objects to be stored, held in memory."""

    def __init__(self, oid_bytes: int) -> None:
        """`oid_bytes`: 20 or 32, as the repository's ids."""
        self._oid_bytes = oid_bytes
        self._objects: dict[bytes, tuple[bytes, bytes]] = {}

    def write(self, kind: bytes, content: bytes, oid: bytes) -> None:
        """Add an object. `oid`: the hash of its content, computed by the caller."""
        self._objects[oid] = kind, content

    def get(self, oid: bytes) -> bytes | None:
        """The content of an object that was added, or None."""
        found = self._objects.get(oid)
        return None if found is None else found[1]

    def format(self) -> bytes:
        """The pack, for git's standard input."""
        return b"".join(self._format_parts())

    def _format_parts(self) -> list[bytes]:
        """Header, one part for each object, and the hash of all that."""
        head = b"PACK" + struct.pack(">II", _VERSION, len(self._objects))
        parts = [head, *(_format_entry(kind, content) for kind, content in self._objects.values())]
        return [*parts, self._hash(parts)]

    def _hash(self, parts: Iterable[bytes]) -> bytes:
        algorithm = hashlib.sha1(usedforsecurity=False) if self._oid_bytes == 20 else hashlib.sha256()
        for part in parts:
            algorithm.update(part)
        return algorithm.digest()

    def place(self, objects: Path) -> None:
        """Put the pack and its index into an objects directory: two files, where each loose object is two
        entries. Not synced. Raises: `quota_exceeded` for a full disk.
        """
        parts = self._format_parts()
        stem = f"{objects}/pack/pack-{parts[-1].hex()}"
        try:
            os.makedirs(f"{objects}/pack", 0o755, exist_ok=True)  # noqa: PTH103 - a string, as above
            for name, data in ((f"{stem}.pack", b"".join(parts)), (f"{stem}.idx", self._format_index(parts))):
                with open(name, "wb") as file:  # noqa: PTH123 - a string, as above
                    file.write(data)
        except OSError as error:
            raise translate_shortage(error) or error from error

    def _format_index(self, parts: Sequence[bytes]) -> bytes:
        """Version 2: how many ids begin with at most each byte; the ids in order, and of each the checksum of its entry
        and its offset in the pack; then the pack's hash, and that of the index.
        """
        offsets = itertools.accumulate(map(len, parts))
        rows = sorted(zip(self._objects, map(zlib.crc32, parts[1:-1]), offsets, strict=False))
        counts = [0] * 256
        for oid, _, _ in rows:
            counts[oid[0]] += 1
        columns = [
            b"\xfftOc" + struct.pack(">I", 2),
            struct.pack(">256I", *itertools.accumulate(counts)),
            b"".join(oid for oid, _, _ in rows),
            *(struct.pack(f">{len(rows)}I", *(row[column] for row in rows)) for column in (1, 2)),
            parts[-1],
        ]
        return b"".join([*columns, self._hash(columns)])

    def store(self, git: Git) -> None:
        """Store the objects; no ref leads to them. Raises: `OutOfMemory`; `internal`, also if git stored others."""
        if not self._objects:
            return
        is_kept = len(self._objects) > MOST_LOOSE
        command = ("index-pack", "--stdin", "--threads=1") if is_kept else ("unpack-objects", "-q")
        result = git.attempt(*command, stdin=self.format())
        if result.code != 0:
            raise describe_storage_failure(command[0], result.code, result.stderr)
        self._require_stored(git)

    def _require_stored(self, git: Git) -> None:
        """Read each object back. Those without a loose file are packed: git is asked for them."""
        loose = LooseObjects(git.new_objects or git.git_dir.absolute() / "objects")
        packed: dict[bytes, list[bytes]] = {}
        for oid, (kind, content) in self._objects.items():
            is_same = loose.holds(kind, content, oid)
            if is_same is None:
                packed.setdefault(kind, []).append(oid)
            elif not is_same:
                raise _different_error(oid)
        if not packed:
            return
        reader = ObjectReader(git)
        with reader.session():
            for kind, oids in packed.items():
                most = max(len(self._objects[oid][1]) for oid in oids)
                for oid, found in zip(oids, reader.contents([oid.hex() for oid in oids], kind, most), strict=True):
                    if found != self._objects[oid][1]:
                        raise _different_error(oid)


def _format_entry(kind: bytes, content: bytes) -> bytes:
    """Type and size, seven bits a byte after the first four, then the deflated content."""
    size = len(content)
    byte, size = _KINDS[kind] << 4 | size & 0x0F, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head) + zlib.compress(content, _LEVEL)


def _different_error(oid: bytes) -> SandboxError:
    return SandboxError(ErrorCode.INTERNAL, "git stored a different object than requested", details=oid.hex())
