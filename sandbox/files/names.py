"""Names in a worktree: what each is to us, and how many we look at."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import is_dotgit
from sandbox.policy.writes import RESERVED_PREFIX

_CLEAN = "`sandbox task clean TASK` takes away what checks left and no commit would hold."


class EntryKind(StrEnum):
    """What a walked name is. `rejected`: never read, hashed or committed."""

    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Entry:
    """One name of a walk: path bytes relative to the root, and its lstat; `times_ns` are mtime and ctime."""

    path: bytes
    kind: EntryKind
    executable: bool
    size: int
    times_ns: tuple[int, int] = field(default=(0, 0), compare=False)


@dataclass(frozen=True)
class Limits:
    """How much of a tree a walk looks at before it refuses."""

    entries: int = 500_000
    depth: int = 128

    def too_many(self) -> SandboxError:
        """`quota_exceeded` for a tree of more names."""
        return SandboxError(ErrorCode.QUOTA_EXCEEDED, f"The worktree has over {self.entries} entries", hint=_CLEAN)

    def too_deep(self) -> SandboxError:
        """`quota_exceeded` for directories that are nested deeper."""
        brief = f"The worktree is nested too deeply, in more than {self.depth} directories"
        return SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint=_CLEAN)


def kind_of(name: bytes, mode: int) -> EntryKind:
    """What a name with this `st_mode` is to us."""
    if is_dotgit(name) or name.startswith(RESERVED_PREFIX):
        return EntryKind.REJECTED
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISLNK(mode):
        return EntryKind.SYMLINK
    return EntryKind.DIRECTORY if stat.S_ISDIR(mode) else EntryKind.REJECTED
