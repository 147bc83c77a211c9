"""The files of trees that Git LFS keeps elsewhere, with the objects to lay out in their place (docs/adr/0076)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from sandbox.git.entries import TreeEntry
from sandbox.git.lfs_pointers import PointedFile, Pointer
from sandbox.lazy_dataclass import dataclass
from sandbox.workspaces.lfs_objects import LfsObjects


@dataclass(frozen=True)
class LargeFiles:
    """Files to lay out instead of their pointers; none: pointers stay. `folder`: of the objects, all of them there."""

    folder: Path = Path("/nonexistent")
    files: Sequence[PointedFile] = ()

    @cached_property
    def _by_place(self) -> dict[tuple[bytes, str], Pointer]:
        return {(one.entry.path, one.entry.oid): one.pointer for one in self.files}

    def open(self, path: bytes, blob: str) -> Iterator[bytes] | None:
        """The content of the object that stands for a blob at a path; None if the blob is the file."""
        pointer = self._by_place.get((path, blob))
        return None if pointer is None else LfsObjects(self.folder).read(pointer)

    def size_of(self, entry: TreeEntry) -> int:
        """Bytes that a leaf has on disk."""
        pointer = self._by_place.get((entry.path, entry.oid))
        return (entry.size or 0) if pointer is None else pointer.size

    @property
    def identity(self) -> str:
        """Says exactly which leaves are laid out as objects; '' for none."""
        lines = sorted(b"%s %s %s\0" % (f.entry.mode.encode(), f.entry.oid.encode(), f.entry.path) for f in self.files)
        return hashlib.sha256(b"".join(lines)).hexdigest() if lines else ""


NO_LARGE_FILES = LargeFiles()
