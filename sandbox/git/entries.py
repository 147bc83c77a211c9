"""Plain types of git trees and commits: modes, leaves and their changes. No git runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

REGULAR, EXECUTABLE, SYMLINK, GITLINK = "100644", "100755", "120000", "160000"

PATHS_BYTES = 64 * 1024**2
"""Paths of all entries of one listing together: 200 bytes for each of 300,000 files. A name in a tree may have any
length, and is in the path of each entry below it: 2,000 files below a name of 1 MB are 2 GB of paths. git's fsck takes
it. Reached: `quota_exceeded`.
"""


class Item(NamedTuple):
    """One entry of a stored tree. `mode`: as stored. `oid`: 20 or 32 bytes."""

    mode: int
    oid: bytes


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One leaf of a tree. `size` is None for a gitlink, or if sizes were not requested."""

    path: bytes
    mode: str
    oid: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Content:
    """A file's bytes, which need not be in memory. `read` returns them in chunks, as often as it is called.

    `is_stored`: the repository has this blob.
    """

    oid: str
    size: int
    read: Callable[[], Iterator[bytes]] = field(compare=False, repr=False)
    is_stored: bool = False

    def start(self, most: int) -> bytes:
        """The first `most` bytes, or fewer: at least those of the first chunk."""
        return next(self.read(), b"")[:most]


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One change to make: write `content` with `mode` at `path`, or delete the path if `content` is None."""

    path: bytes
    mode: str
    content: Content | None


@dataclass(frozen=True, slots=True)
class RawChange:
    """One line of `diff-tree --raw`. If a side does not exist, its mode is '000000' and its oid is None."""

    path: bytes
    old_mode: str
    new_mode: str
    old_oid: str | None
    new_oid: str | None
    status: str
    old_path: bytes | None = None  # of a rename (status R)


class StoredCommit(NamedTuple):
    """Ids of a commit that was written, and of its tree."""

    commit: str
    tree: str
