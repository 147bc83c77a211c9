"""What an opening that failed has done all the same."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Found
from sandbox.forges.http_session import ForgeFailure
from sandbox.models import PullState


def opened_anyway(error: SandboxError, forge: Forge, head: str) -> Found:
    """The one that is there: another got in first, or the answer was lost on its way. Raises: `error` when none is."""
    if not isinstance(error, ForgeFailure) and error.code is not ErrorCode.CONFLICT:
        raise error
    try:
        found = forge.find(head)
    except SandboxError:
        raise error from None  # the first failure says more
    if found is None or found.pull.state is not PullState.OPEN:
        raise error
    return found
