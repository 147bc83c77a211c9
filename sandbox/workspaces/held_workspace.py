"""Whether a workspace object may still be used: it was neither closed nor released."""

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
