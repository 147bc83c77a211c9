"""What an approval permits, and the error while there is none."""

from __future__ import annotations

from typing import Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalScope, Permission
from sandbox.workbench.controller.callers import clip_text


def permission_by_approval(taken: Approval) -> Permission:
    """Why a call is allowed that a person approved."""
    how: Literal["person", "standing"] = "person" if taken.scope is ApprovalScope.ONCE else "standing"
    return Permission(how=how, approval_id=taken.id, decided_by=clip_text(taken.decided_by))


def approval_required_error(asked: Approval, where: str = "") -> SandboxError:
    """A question waits for its answer. `where`: the host on which it does, if that is another one."""
    command = f"sandbox approvals approve {asked.id}"
    return SandboxError(
        ErrorCode.APPROVAL_REQUIRED,
        f"A person has to approve {asked.tool}",
        details=asked.id,
        data={"approval_id": asked.id},
        hint=f"They run{f' on {where}' if where else ':'} {command}. Then make exactly the same call again.",
    )
