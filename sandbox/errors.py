"""The exception of the product and its stable codes.

What the guest did is never an exception (see `sandbox.models.Verdict`); a failure of the controller is.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self, TypeVar


class ErrorCode(StrEnum):
    """Stable identifiers. Callers branch on these, never on texts."""

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
    REMOTE_BROKEN = "remote_broken"
    NETWORK_ERROR = "network_error"
    TIMEOUT = "timeout"
    ORIGIN_MISMATCH = "origin_mismatch"
    PUSH_REJECTED = "push_rejected"
    FORGE_UNSUPPORTED = "forge_unsupported"
    FORGE_ERROR = "forge_error"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_DENIED = "approval_denied"
    EGRESS_REFUSED = "egress_refused"
    GATE_CLOSED = "gate_closed"
    QUOTA_EXCEEDED = "quota_exceeded"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    IMAGE_MISSING = "image_missing"
    SERVICE_FAILED = "service_failed"
    POLICY_VIOLATION = "policy_violation"
    RECEIPT_REFUSED = "receipt_refused"
    INTERNAL = "internal"


class SandboxError(Exception):
    """Something on the controller's side failed; it says nothing about the guest.

    `brief`: what failed and on which task, image or ref. `details`: evidence for people, without credentials.
    `hint`: what the user can do next. `reason`, `data`: for programs, where the code does not say enough: a stable
    word, and JSON values.
    """

    def __init__(
        self,
        code: ErrorCode,
        brief: str,
        details: str = "",
        hint: str = "",
        *,
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

    def __str__(self) -> str:
        """All that a person needs who sees only a traceback."""
        return "\n".join(filter(None, (f"{self.code.value}: {self.brief}", self.details, self.hint)))

    def with_hint(self, hint: str) -> Self:
        """A copy with another hint."""
        return self.with_changes(hint=hint)

    def with_details(self, details: str) -> Self:
        """A copy with other details."""
        return self.with_changes(details=details)

    def with_changes(
        self,
        *,
        brief: str | None = None,
        details: str | None = None,
        hint: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Self:
        """A copy with other texts, for a caller to raise `from` this error. All else is kept: code, reason, class, and
        the attributes of a subclass. `data`: added to what the error has.

        The constructors of subclasses take other arguments, so none is called.
        """
        more = None if data is None else {**(self.data or {}), **data}
        changed = {"brief": brief, "details": details, "hint": hint, "data": more}
        copied = _make_error(type(self), self.args if brief is None else (brief, *self.args[1:]))
        copied.__dict__.update(self.__dict__)
        if "__notes__" in self.__dict__:
            copied.__notes__ = list(self.__notes__)
        copied.__dict__.update({name: value for name, value in changed.items() if value is not None})
        return copied

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle and copy, as of another process: by default they call the constructor with `args` alone."""
        return _make_error, (type(self), self.args), self.__dict__

    def payload(self) -> dict[str, dict[str, Any]]:
        """The JSON of all surfaces: `{"error": {code, brief, details, hint}}`, with `reason` and `data` if set."""
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


_ErrorT = TypeVar("_ErrorT", bound=SandboxError)


def _make_error(kind: type[_ErrorT], args: tuple[Any, ...]) -> _ErrorT:
    """An error without its attributes; no constructor is called."""
    return kind.__new__(kind, *args)


def describe_briefly(error: BaseException) -> str:
    """One line for a log: the brief of our errors, the beginning of the text of others."""
    text = error.brief if isinstance(error, SandboxError) else str(error)
    return " ".join(text.split())[:500]


DISK_FULL = "The disk is full"
DISK_FULL_HINT = "Close tasks with --delete; run `sandbox gc` to remove what killed commands left behind."
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of an OSError that say that a disk, or a quota on it, is full."""

NO_LOCKS = "The file system has no locks, which several processes of one home need"
NO_LOCKS_HINT = "Choose a home on a disk of this host with --home; some network file systems have no locks."

_SHORTAGES = {
    errno.ENOSPC: (ErrorCode.QUOTA_EXCEEDED, DISK_FULL, DISK_FULL_HINT),
    errno.EDQUOT: (ErrorCode.QUOTA_EXCEEDED, "Your disk quota is used up", DISK_FULL_HINT),
    errno.EROFS: (ErrorCode.INVALID_INPUT, "The file system is read-only", "Choose another home with --home."),
    errno.ENOLCK: (ErrorCode.INVALID_INPUT, NO_LOCKS, NO_LOCKS_HINT),
    errno.EMFILE: (ErrorCode.QUOTA_EXCEEDED, "This process has too many open files", "Raise `ulimit -n`."),
    errno.ENFILE: (ErrorCode.QUOTA_EXCEEDED, "This host has too many open files", "Raise fs.file-max (sysctl)."),
    errno.ENOMEM: (ErrorCode.QUOTA_EXCEEDED, "This host has no memory left", "Run fewer checks in parallel."),
}


def translate_shortage(error: OSError) -> SandboxError | None:
    """Translate an error of a host that lacks something; it is no bug. None for other errors. Pure."""
    found = _SHORTAGES.get(error.errno or 0)
    return SandboxError(found[0], found[1], details=str(error)[:500], hint=found[2]) if found else None
