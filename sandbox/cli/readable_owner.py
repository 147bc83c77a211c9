"""The argument `TASK|REPO[@REF]` of commands that only read files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

OWNER_METAVAR = "TASK|REPO[@REF]"


def find_owner(workbench: Workbench, text: str) -> tuple[str, str | None]:
    """The id, and the ref to read of a repository; None for a task. Raises: `invalid_input`, `not_found`."""
    name, at, ref = text.rpartition("@")
    if not at or ":" in ref:  # git@host:path is a name
        name, ref = text, ""
    found = workbench.complete_id(name)
    if not found.startswith("task-"):
        return found, ref or "HEAD"
    if ref:
        hint = "A task has its own files: leave @REF out. A repository has commits: `sandbox repo list` shows all."
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{found} is a task: it has no refs", hint=hint)
    return found, None
