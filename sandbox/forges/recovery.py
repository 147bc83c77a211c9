"""Recovery after a failed opening: the pull request may exist all the same."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, PullWithText
from sandbox.forges.http_session import TransientForgeError
from sandbox.models import PullState


def recover_pull(error: SandboxError, forge: Forge, head: str) -> PullWithText:
    """Find the pull request after an error: another process opened it, or the answer was lost. Else raises `error`."""
    if not isinstance(error, TransientForgeError) and error.code is not ErrorCode.CONFLICT:
        raise error
    try:
        found = forge.find(head)
    except SandboxError:
        raise error from None  # the first error is more useful
    if found is None or found.pull.state is not PullState.OPEN:
        raise error
    return found
