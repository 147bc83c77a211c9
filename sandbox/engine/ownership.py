"""Whether guests own the files that this host gives them. Pure, except `require_same_users`, which asks the engine.

An engine with userns-remap, or a rootless one, gives the guest other uids than this host has. The worktree then belongs
to another user in the guest, writes to it fail, and a check that ignores errors passes without doing any work. So such
an engine is refused before a container starts. Also, PID 1 tries to write before any check: this finds causes that no
engine reports (a network file system that maps owners, a security module).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.engine.pid1_messages import Posture
from sandbox.engine.protocol import EngineInformation
from sandbox.errors import ErrorCode, SandboxError

USER_MAPPING_HINT = (
    "Engines with userns-remap and rootless engines are not supported yet: their guests have other uids than this host "
    "and cannot write their files. Point engine.host or DOCKER_HOST at an ordinary engine."
)
_MAPPINGS = {"userns": "maps users (userns-remap)", "rootless": "is rootless"}
_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})  # the kernel checks permission first; a check reports these itself
_OWNER_MAY_WRITE = 0o300
_LINE = re.compile(r"^(\d{1,9}) (\d{1,10}) ([0-7]{1,6}) (/.*)$", re.MULTILINE)


def describe_user_mapping(info: Mapping[str, Any]) -> str:
    """Describe how an engine maps guests to other users, from `GET /info`; '' when it does not."""
    options = [str(option).split(",") for option in info.get("SecurityOptions") or ()]
    return next((words for name, words in _MAPPINGS.items() if any(f"name={name}" in o for o in options)), "")


def require_same_users(engine: EngineInformation) -> Mapping[str, Any]:
    """Return what the engine says of itself, which is read for this: one request.

    Raises: `engine_unavailable` for an engine that maps users.
    """
    info = engine.info()
    if words := describe_user_mapping(info):
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE, f"The engine {words}", details=engine.endpoint.url, hint=USER_MAPPING_HINT
        )
    return info


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
            hint=f"{USER_MAPPING_HINT} The cause can also be a file system that maps owners, or a security module.",
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
        if not self.error or self.error in _SPACE or (self.error == errno.EACCES and own_doing):
            return ""
        return f"{self.path} ({os.strerror(self.error)}; it belongs to uid {self.owner} there, and a check is {uid})"


def _parse_folder_tests(text: str) -> dict[str, _FolderTest]:
    found = (
        _FolderTest(path, int(error), int(owner), int(mode, 8)) for error, owner, mode, path in _LINE.findall(text)
    )
    return {folder.path: folder for folder in found}
