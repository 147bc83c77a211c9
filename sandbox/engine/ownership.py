"""Whether guests see this host's files as their own. Pure, but for the question to the engine.

An engine with userns-remap, or one without root, gives the guest other uids than this host has. The worktree then
belongs to another user there, writes to it are refused, and a check that ignores errors passes without any work done.
So such an engine is refused by name before a container starts; and PID 1 tries to write before any check, which also
finds what no engine says of itself (a network file system that maps owners, a security module).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.engine.connection import Engine
from sandbox.engine.pid1_messages import Posture
from sandbox.errors import ErrorCode, SandboxError

HINT = (
    "Not supported yet: an engine with userns-remap, or a rootless one. Guests there are other users than on this host "
    "and cannot write their files. Point engine.host or DOCKER_HOST at an ordinary engine."
)
_MAPPINGS = {"userns": "maps users (userns-remap)", "rootless": "is rootless"}
_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})  # come after the question of rights, and a check meets them itself
_OWNER_MAY_WRITE = 0o300
_LINE = re.compile(r"^(\d{1,9}) (\d{1,10}) ([0-7]{1,6}) (/.*)$", re.MULTILINE)


def mapping_of(info: Mapping[str, Any]) -> str:
    """How an engine gives guests other users than this host has, in words; '' when it does not. From `GET /info`."""
    options = [str(option).split(",") for option in info.get("SecurityOptions") or ()]
    return next((words for name, words in _MAPPINGS.items() if any(f"name={name}" in o for o in options)), "")


def require_same_users(engine: Engine) -> None:
    """Raises: `engine_unavailable` for an engine that maps users. Costs a call to it."""
    if words := mapping_of(engine.info()):
        raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, f"The engine {words}", details=engine.endpoint.url, hint=HINT)


def require_writable(found: Posture, options: Mapping[str, Any]) -> None:
    """Raises: `engine_unavailable` naming each folder that a check cannot write to, or that PID 1 did not try."""
    uid = int(options["User"].partition(":")[0])
    said = _folders(found.folders)
    wrong = [
        fault
        for folder in options["Entrypoint"][2:]
        if (fault := said[folder].fault(uid) if folder in said else f"{folder} (not tried)")
    ]
    if wrong:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"A check could not write {' and '.join(wrong)}, so none was started",
            details=found.folders,
            hint=f"{HINT} The cause can also be a file system that maps owners, or a security module.",
        )


@dataclass(frozen=True)
class _Folder:
    """What PID 1 says of one: why it could not make a file there, or 0; its owner and its mode as seen in the guest."""

    path: str
    error: int
    owner: int
    mode: int

    def fault(self, uid: int) -> str:
        """'' when a check can write, or could until it took that right from itself: then that is the check's doing."""
        own_doing = self.owner == uid and self.mode & _OWNER_MAY_WRITE != _OWNER_MAY_WRITE
        if not self.error or self.error in _SPACE or (self.error == errno.EACCES and own_doing):
            return ""
        return f"{self.path} ({os.strerror(self.error)}; it belongs to uid {self.owner} there, and a check is {uid})"


def _folders(text: str) -> dict[str, _Folder]:
    found = (_Folder(path, int(error), int(owner), int(mode, 8)) for error, owner, mode, path in _LINE.findall(text))
    return {folder.path: folder for folder in found}
