"""Whether a guest can write the folders that this host gives it. Pure.

Where it cannot, a check that ignores errors passes without doing any work. An engine that gives guests other uids is
refused by name (user_maps.py). PID 1 also tries to write before any check: this finds causes that no engine reports (a
network file system that maps owners, a security module).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any

from sandbox.engine.pid1_messages import Posture
from sandbox.errors import NO_SPACE, ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

_OWNER_MAY_WRITE = 0o300
_LINE = lazy_pattern(r"^(\d{1,9}) (\d{1,10}) ([0-7]{1,6}) (/.*)$", re.MULTILINE)


def require_writable_folders(posture: Posture, options: Mapping[str, Any]) -> None:
    """Raises: `engine_unavailable`, with each folder that a check cannot write to or that PID 1 did not test."""
    uid = int(options["User"].partition(":")[0])
    said = _parse_folder_tests(posture.folders)
    wrong = [
        fault
        for folder in options["Entrypoint"][2:]
        if (fault := said[folder].explain_failure(uid) if folder in said else f"{folder} (not tried)")
    ]
    if wrong:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"A check could not write {' and '.join(wrong)}, so none was started",
            details=posture.folders,
            hint="The engine, a file system that maps owners, or a security module gives guests other rights than this "
            "host does: `sandbox doctor` shows the first (userns, lsm).",
        )


@dataclass(frozen=True)
class _FolderTest:
    """PID 1's write test of one folder: errno or 0; the folder's owner and mode as seen in the guest."""

    path: str
    error: int
    owner: int
    mode: int

    def explain_failure(self, uid: int) -> str:
        """'' when a check can write, or when the guest itself, as the owner, removed the write permission."""
        own_doing = self.owner == uid and self.mode & _OWNER_MAY_WRITE != _OWNER_MAY_WRITE
        # The kernel checks permission before space; of a lack of space a check reports itself.
        if not self.error or self.error in NO_SPACE or (self.error == errno.EACCES and own_doing):
            return ""
        return f"{self.path} ({os.strerror(self.error)}; it belongs to uid {self.owner} there, and a check is {uid})"


def _parse_folder_tests(text: str) -> dict[str, _FolderTest]:
    found = (
        _FolderTest(path, int(error), int(owner), int(mode, 8)) for error, owner, mode, path in _LINE.findall(text)
    )
    return {folder.path: folder for folder in found}
