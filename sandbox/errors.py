"""The one exception of the product and its stable codes.

What the guest did is never an exception (see `sandbox.models.Verdict`); what we failed to do is.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class ErrorCode(StrEnum):
    """Stable identifiers: callers branch on these, never on the text."""

    INVALID_INPUT = "invalid_input"
    UNSAFE_PATH = "unsafe_path"
    UNSAFE_REPOSITORY = "unsafe_repository"
    NOT_FOUND = "not_found"
    STALE_HASH = "stale_hash"
    PATCH_REJECTED = "patch_rejected"
    CONFLICT = "conflict"
    NOTHING_TO_COMMIT = "nothing_to_commit"
    DIRTY_WORKSPACE = "dirty_workspace"
    AUTH_FAILED = "auth_failed"
    REMOTE_NOT_FOUND = "remote_not_found"
    NETWORK_ERROR = "network_error"
    TIMEOUT = "timeout"
    ORIGIN_MISMATCH = "origin_mismatch"
    PUSH_REJECTED = "push_rejected"
    FORGE_UNSUPPORTED = "forge_unsupported"
    FORGE_ERROR = "forge_error"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_DENIED = "approval_denied"
    GATE_CLOSED = "gate_closed"
    QUOTA_EXCEEDED = "quota_exceeded"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    IMAGE_MISSING = "image_missing"
    POLICY_VIOLATION = "policy_violation"
    INTERNAL = "internal"


class SandboxError(Exception):
    """Something on our side failed; nothing can be said about the guest.

    `brief`: what failed and on which task, image or ref. `details`: evidence, scrubbed of credentials.
    `hint`: what the reader can do next. `reason`, `data`: the same for programs, where there is more to say than the
    code: a word, and JSON values.
    """

    def __init__(
        self,
        code: ErrorCode,
        brief: str,
        *,
        details: str = "",
        hint: str = "",
        reason: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(brief)
        self.code = code
        self.brief = brief
        self.details = details
        self.hint = hint
        self.reason = reason
        self.data = data

    def payload(self) -> dict[str, dict[str, Any]]:
        """The JSON shape shared by every surface: `{"error": {code, brief, details, hint}}`, more where set."""
        more = {"reason": self.reason, "data": self.data}
        return {
            "error": {
                "code": self.code.value,
                "brief": self.brief,
                "details": self.details,
                "hint": self.hint,
                **{name: value for name, value in more.items() if value is not None},
            }
        }


FULL = "The disk is full"
FULL_HINT = "Close tasks with --delete; `sandbox gc` removes what killed commands left."
_SHORTAGES = {
    errno.ENOSPC: (ErrorCode.QUOTA_EXCEEDED, FULL, FULL_HINT),
    errno.EDQUOT: (ErrorCode.QUOTA_EXCEEDED, "Your quota of disk space is used up", FULL_HINT),
    errno.EROFS: (ErrorCode.INVALID_INPUT, "The file system is read-only", "Name a home elsewhere with --home."),
    errno.EMFILE: (ErrorCode.QUOTA_EXCEEDED, "This process has too many open files", "Raise `ulimit -n`."),
    errno.ENFILE: (ErrorCode.QUOTA_EXCEEDED, "This host has too many open files", "Raise fs.file-max (sysctl)."),
    errno.ENOMEM: (ErrorCode.QUOTA_EXCEEDED, "This host has no memory left", "Run less at once."),
}


def shortage(error: OSError) -> SandboxError | None:
    """What this host is short of, if that is why: nobody's defect. None for any other failure. Pure."""
    found = _SHORTAGES.get(error.errno or 0)
    return SandboxError(found[0], found[1], details=str(error)[:500], hint=found[2]) if found else None
