"""What happens is what was approved: the same commit, the same tree."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError


def require_approved(what: str, found: str, approved: str | None) -> None:
    """`what`: "commit" or "tree". `approved`: by a person, or what the call began with; None: any.

    Raises: `conflict`.
    """
    if approved not in {None, found}:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The task has another {what} than the one that this was asked for",
            details=f"asked for {approved}, found {found}",
            hint="Look at the diff, and ask again.",
        )
