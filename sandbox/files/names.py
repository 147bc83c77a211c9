"""Names in a worktree: how each is classified, and how many a walk accepts."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import is_dotgit
from sandbox.policy.writes import RESERVED_PREFIX

_CLEAN = "`sandbox task clean TASK` deletes files that checks left and that no commit would contain."


class EntryKind(StrEnum):
    """The kind of a name in a walk. `rejected`: never read, hashed or committed."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    REJECTED = "rejected"


@dataclass(frozen=True)
class WalkEntry:
    """One name in a walk: its path in bytes, relative to the root, and its lstat. `times_ns`: mtime and ctime."""

    path: bytes
    kind: EntryKind
    executable: bool
    size: int
    times_ns: tuple[int, int] = field(default=(0, 0), compare=False)


@dataclass(frozen=True)
class WalkLimits:
    """The largest tree that a walk accepts."""

    entries: int = 500_000
    depth: int = 128

    def too_many_error(self) -> SandboxError:
        """`quota_exceeded` for a tree with more names."""
        return SandboxError(ErrorCode.QUOTA_EXCEEDED, f"The worktree has over {self.entries} entries", hint=_CLEAN)

    def too_deep_error(self) -> SandboxError:
        """`quota_exceeded` for deeper directories."""
        brief = f"The worktree is nested too deeply: more than {self.depth} directories"
        return SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint=_CLEAN)


def kind_of(name: bytes, mode: int) -> EntryKind:
    """Classify a name with this `st_mode`."""
    if is_dotgit(name) or name.startswith(RESERVED_PREFIX):
        return EntryKind.REJECTED
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISLNK(mode):
        return EntryKind.SYMLINK
    return EntryKind.DIRECTORY if stat.S_ISDIR(mode) else EntryKind.REJECTED
