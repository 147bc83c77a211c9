"""What happens is what was approved: the same commit, the same tree."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError


def require_approved(what: str, found: str, approved: str | None) -> None:
    """`what`: "commit" or "tree"; `approved` is None when nobody was asked. Raises: `conflict`."""
    if approved not in {None, found}:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The task has another {what} than the one that was approved",
            details=f"approved {approved}, found {found}",
            hint="Look at the diff, and ask for approval again.",
        )
