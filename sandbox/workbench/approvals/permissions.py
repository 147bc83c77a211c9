"""What an approval permits, and the error while there is none."""

from __future__ import annotations

from typing import Literal

from sandbox.approvals import OutdatedApproval
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalScope, Permission
from sandbox.workbench.controller.callers import clip_text


def permission_by_approval(taken: Approval) -> Permission:
    """Why a call is allowed that a person approved."""
    how: Literal["person", "standing"] = "person" if taken.scope is ApprovalScope.ONCE else "standing"
    return Permission(how=how, approval_id=taken.id, decided_by=clip_text(taken.decided_by))


def approval_required_error(
    asked: Approval, where: str = "", *, outdated: OutdatedApproval | None = None
) -> SandboxError:
    """A question waits for its answer. `where`: the host on which it does, if that is another one. `outdated`: the
    approval that a person gave before, for another state.
    """
    command = f"sandbox approvals approve {asked.id}"
    data: dict[str, object] = {"approval_id": asked.id}
    why = ""
    if outdated is not None:
        data["outdated"] = {"approval_id": outdated.id, "changed": list(outdated.changed)}
        why = f"Since {outdated.id} was asked for, this changed: {'; '.join(outdated.changed)}. "
    return SandboxError(
        ErrorCode.APPROVAL_REQUIRED,
        f"A person has to approve {asked.tool}",
        details=asked.id,
        data=data,
        hint=f"{why}They run{f' on {where}' if where else ':'} {command}. Then make exactly the same call again.",
    )
