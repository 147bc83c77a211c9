"""Plain types of git trees: modes, leaves, and changes of them. No git runs here."""

from __future__ import annotations

from dataclasses import dataclass

REGULAR, EXECUTABLE, SYMLINK, GITLINK = "100644", "100755", "120000", "160000"


@dataclass(frozen=True)
class TreeEntry:
    """One leaf of a tree. `size` is None for a gitlink, or when nobody asked for it."""

    path: bytes
    mode: str
    oid: str
    size: int | None


@dataclass(frozen=True)
class TreeChange:
    """What to do to one path: write `content` with `mode`, or delete it when `content` is None."""

    path: bytes
    mode: str
    content: bytes | None


@dataclass(frozen=True)
class RawChange:
    """One line of `diff-tree --raw`: modes are '000000' and oids None where the side does not exist."""

    path: bytes
    old_mode: str
    new_mode: str
    old_oid: str | None
    new_oid: str | None
    status: str
    old_path: bytes | None = None  # of a rename (status R)
