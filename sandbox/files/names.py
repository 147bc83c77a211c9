"""Names in a worktree: how each is classified, and how many a walk accepts."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import RESERVED_PREFIX, is_dotgit

_CLEAN = "`sandbox task clean TASK` deletes files that checks left and that no commit would contain."

TOO_MANY_NAMES = "too-many-names"
"""`reason` of the `quota_exceeded` of more names, or longer ones, than a limit allows."""


class WorktreeTooLarge(SandboxError):
    """`quota_exceeded` for files that are too many or too large. Its hint is for the worktree of a task."""


class EntryKind(StrEnum):
    """The kind of a name in a walk. `rejected`: never read, hashed or committed."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """One name in a walk: its path in bytes, relative to the root, and its lstat. `times_ns`: mtime and ctime."""

    path: bytes
    kind: EntryKind
    executable: bool
    size: int
    times_ns: tuple[int, int] = field(default=(0, 0), compare=False)


@dataclass(frozen=True)
class WalkLimits:
    """The largest tree that a walk accepts. `name_bytes`: of the paths of all entries together."""

    entries: int = 500_000
    depth: int = 128
    name_bytes: int = 64 * 1024**2

    def require(self, entries: int, name_bytes: int) -> None:
        """Raises: `quota_exceeded` for more than these limits allow."""
        if entries > self.entries:
            raise _quota_error(f"The worktree has over {self.entries} entries", TOO_MANY_NAMES)
        if name_bytes > self.name_bytes:
            raise _quota_error(
                f"The paths in the worktree are longer than {self.name_bytes} bytes together", TOO_MANY_NAMES
            )

    def too_deep_error(self) -> SandboxError:
        """`quota_exceeded` for deeper directories."""
        return _quota_error(f"The worktree is nested too deeply: more than {self.depth} directories")


def _quota_error(brief: str, reason: str | None = None) -> SandboxError:
    return WorktreeTooLarge(ErrorCode.QUOTA_EXCEEDED, brief, hint=_CLEAN, reason=reason)


def kind_of(name: bytes, mode: int) -> EntryKind:
    """Classify a name with this `st_mode`."""
    if is_dotgit(name) or name.startswith(RESERVED_PREFIX):
        return EntryKind.REJECTED
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISLNK(mode):
        return EntryKind.SYMLINK
    return EntryKind.DIRECTORY if stat.S_ISDIR(mode) else EntryKind.REJECTED
