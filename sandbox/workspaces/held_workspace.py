"""Whether a workspace object may be used: it was neither closed nor released, and may be changed if it is to be."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.errors import ErrorCode, SandboxError


def always_held() -> bool:
    """Of what is not acquired, such as the current directory: it is not released either."""
    return True


def require_open(workspace_id: str, *, is_closed: bool, is_held: Callable[[], bool]) -> None:
    """Raises: `conflict`."""
    if is_closed or not is_held():
        ended = "closed" if is_closed else "released"
        raise SandboxError(
            ErrorCode.CONFLICT, f"The workspace {workspace_id} was {ended}", hint="Acquire it again to use it."
        )


def require_writable(workspace_id: str, *, is_writable: bool) -> None:
    """Raises: `policy_violation`."""
    if not is_writable:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The workspace {workspace_id} was acquired for reading only",
            hint="Acquire it with writable=True to change it.",
        )
