"""The reasons for which a push is rejected, each with its words and what to do about it; `TASK` stands for the task."""

from __future__ import annotations

from enum import StrEnum

from sandbox.errors import ErrorCode, SandboxError


class PushReason(StrEnum):
    """Why the remote did not take a push. Stable: programs branch on these."""

    BRANCH_EXISTS = "branch_exists"
    BRANCH_MOVED = "branch_moved"
    BRANCH_DELETED = "branch_deleted"
    NON_FAST_FORWARD = "non_fast_forward"
    PROTECTED_BRANCH = "protected_branch"
    REPOSITORY_RULES = "repository_rules"
    LEAK = "secret_found"
    WORKFLOW_SCOPE = "workflow_scope"
    TOO_LARGE = "too_large"
    QUOTA = "quota"
    READ_ONLY = "read_only"
    MISSING_OBJECTS = "missing_objects"
    UNSAFE_OBJECTS = "unsafe_objects"
    HOOK_DECLINED = "hook_declined"
    REFUSED = "refused"


_FORK = "`sandbox task fork TASK` goes on with the work on another branch."
_TOLD = {
    PushReason.BRANCH_EXISTS: (
        "the remote has this branch already, and not from us",
        f"Nothing was overwritten. Instead: {_FORK}",
    ),
    PushReason.BRANCH_MOVED: (
        "somebody else moved the branch since we pushed it",
        f"Nothing was overwritten. Look at the branch there. To keep both: {_FORK}",
    ),
    PushReason.BRANCH_DELETED: (
        "the branch was deleted on the remote since we pushed it",
        f"It may have been merged: then close the task. Otherwise: {_FORK}",
    ),
    PushReason.NON_FAST_FORWARD: (
        "the server lets no branch be rewritten, and this commit does not continue what is there",
        f"Nothing was overwritten. Instead: {_FORK}",
    ),
    PushReason.PROTECTED_BRANCH: (
        "the branch is protected",
        "Have whoever runs the repository take space-agent/* out of the protection rules.",
    ),
    PushReason.REPOSITORY_RULES: (
        "a rule of the repository forbids it",
        "The details say which: often the form of the message, the author's address, or a path.",
    ),
    PushReason.LEAK: (
        "the server found a secret in the commits",
        "Take it out in a new task from the base branch: later commits do not remove it. A real one is to be revoked.",
    ),
    PushReason.WORKFLOW_SCOPE: (
        "the credentials may not change workflow files",
        "Leave .github/workflows as it is; or, if a person wants that change, use a token with the workflow scope.",
    ),
    PushReason.TOO_LARGE: (
        "a file, or the whole push, is larger than the server takes",
        "Start again from the base branch without the large files: later commits do not remove them.",
    ),
    PushReason.QUOTA: ("the server has no room left for it", "Have whoever runs the repository make room."),
    PushReason.READ_ONLY: (
        "the repository is archived, a mirror, or read-only for now",
        "Have whoever runs the repository unlock it, or work in a fork of it.",
    ),
    PushReason.MISSING_OBJECTS: (
        "the server misses objects that the commit refers to",
        "Files in Git LFS have to be uploaded first; else clone the repository again, without --partial.",
    ),
    PushReason.UNSAFE_OBJECTS: (
        "the server refuses an object of it as malformed",
        "The details name it; the history may have come with it.",
    ),
    PushReason.HOOK_DECLINED: ("a hook of the server declined it", "The details have the hook's own words."),
    PushReason.REFUSED: ("the server refused it", "The details have the server's own words."),
}


class PushRejected(SandboxError):
    """The remote did not take the push: `push_rejected`. The first line of `details` is `reason: ` and its word."""

    reason: PushReason

    def __init__(self, reason: PushReason, *, said: str = "") -> None:
        """`said`: what git and the server printed, safe to show."""
        told, advice = _TOLD[reason]
        details = f"reason: {reason.value}\n{said}".rstrip()
        super().__init__(ErrorCode.PUSH_REJECTED, f"The push was rejected: {told}", details=details, hint=advice)
        self.reason = reason
        self.said = said
