"""The reasons why a push is rejected, each with its message and a hint. `TASK` in a hint stands for the task."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from sandbox.errors import ErrorCode, SandboxError


class PushReason(StrEnum):
    """Why the remote rejected a push. Stable: programs branch on these values."""

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


_FORK = "`sandbox task fork TASK` continues the work on another branch."
_EXPLANATIONS = {
    PushReason.BRANCH_EXISTS: (
        "the remote already has this branch, and we did not push it",
        f"The remote branch was not changed. Instead: {_FORK}",
    ),
    PushReason.BRANCH_MOVED: (
        "the branch was changed on the remote since we pushed it",
        f"The remote branch was not changed by this push. Check it there. To keep both: {_FORK}",
    ),
    PushReason.BRANCH_DELETED: (
        "the branch was deleted on the remote since we pushed it",
        f"If it was merged, close the task. Otherwise: {_FORK}",
    ),
    PushReason.NON_FAST_FORWARD: (
        "this commit is not a fast-forward of the remote branch, and the server allows no rewrite",
        f"The remote branch was not changed. Instead: {_FORK}",
    ),
    PushReason.PROTECTED_BRANCH: (
        "the branch is protected",
        "Ask the repository's administrator to exclude space-agent/* from the protection rules.",
    ),
    PushReason.REPOSITORY_RULES: (
        "a rule of the repository forbids it",
        "The details name the rule: often the form of the message, the author's address, or a path.",
    ),
    PushReason.LEAK: (
        "the server found a secret in the commits",
        "Remove it in a new task from the base branch: later commits do not remove it. Revoke a real secret.",
    ),
    PushReason.WORKFLOW_SCOPE: (
        "the credentials may not change workflow files",
        "Do not change .github/workflows; or, if a person wants the change, use a token with the workflow scope.",
    ),
    PushReason.TOO_LARGE: (
        "a file or the whole push is larger than the server allows",
        "Start again from the base branch without the large files: later commits do not remove them.",
    ),
    PushReason.QUOTA: (
        "the server has no space left for it",
        "Ask the repository's administrator to free space.",
    ),
    PushReason.READ_ONLY: (
        "the repository is archived, a mirror, or read-only for now",
        "Ask the repository's administrator to unlock it, or work in a fork of it.",
    ),
    PushReason.MISSING_OBJECTS: (
        "the server lacks objects that the commit refers to",
        "Upload files in Git LFS first; otherwise clone the repository again, without --partial. "
        "A shallow checkout is completed by `git fetch --unshallow` in it.",
    ),
    PushReason.UNSAFE_OBJECTS: (
        "the server refuses one of its objects as malformed",
        "The details name the object. It may come from the repository's history.",
    ),
    PushReason.HOOK_DECLINED: ("a hook of the server declined it", "The details contain the hook's message."),
    PushReason.REFUSED: ("the server refused it", "The details contain the server's message."),
}


class PushRejected(SandboxError):
    """The remote rejected the push: `push_rejected`. `output`: what git and the server printed, safe to show."""

    reason: PushReason

    def __init__(self, reason: PushReason, *, output: str = "") -> None:
        explanation, hint = _EXPLANATIONS[reason]
        super().__init__(
            ErrorCode.PUSH_REJECTED,
            f"The push was rejected: {explanation}",
            details=_print_details(reason, output),
            hint=hint,
            reason=reason,
        )
        self.output = output

    def with_details(self, details: str) -> Self:
        """A copy with other output."""
        copied = self.with_changes(details=_print_details(self.reason, details))
        copied.output = details
        return copied


def _print_details(reason: PushReason, output: str) -> str:
    """The text for people. Its first line repeats the reason, which programs read from the field."""
    return f"reason: {reason.value}\n{output}".rstrip()
