"""Make sure that an operation acts on the state that was approved: the same commit, the same tree."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError


def require_approved(what: str, actual: str, approved: str | None) -> None:
    """`what`: "commit" or "tree". `approved`: the id that a person approved, or that the call started with; None: any.

    Raises: `conflict`.
    """
    if approved not in {None, actual}:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The task's {what} is not the one that was requested",
            details=f"requested {approved}, found {actual}",
            hint="Review the diff, then request it again.",
        )
