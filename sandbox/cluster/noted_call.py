"""A call of a controller that publishes, which a kill may interrupt after its approval was used up.

Theory. An approval for one call is used up before the push, so that no second call has it. If the controller is
killed then, the push may not have been made, and the approval would be lost. So the call is noted before its approval
is taken, and forgotten when it was answered. A call that is noted already when it is asked for again was interrupted:
the approval that was used up since then holds for it once more, until it expires. It is the same commit on the same
base to the same branch, so a push that had been made is made again without effect. At most one call about a task is
in progress, because the lock of the task's operations is held (`Workbench.answer_once`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox import approvals
from sandbox.approvals import AgentCall
from sandbox.store.home import read_json, write_json


class NotedCall:
    """The call that one operation makes. `home`: of the controller."""

    def __init__(self, home: Path, task_id: str) -> None:
        self._folder = home / "repositories" / "operations" / task_id
        self._path: Path | None = None

    def note(self, call: AgentCall) -> datetime | None:
        """Remember a call before its approval is taken. Returns when it was noted first, if a kill interrupted it then;
        None for a new call.
        """
        digest = approvals.fingerprint(call).removeprefix("sha256:")
        self._path = self._folder / f"permitted-{digest[:32]}.json"
        if (known := _find_time(read_json(self._path) or {})) is not None:
            return known
        write_json(self._path, {"schema_version": 1, "at": datetime.now(UTC).isoformat()})
        return None

    def forget(self) -> None:
        """The call was answered, or there was none."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _find_time(document: Mapping[str, Any]) -> datetime | None:
    """When a call was noted; None if the document does not say it: an approval that was used then is given once more
    by a person, rather than by a damaged file.
    """
    try:
        found = datetime.fromisoformat(str(document.get("at")))
    except ValueError:
        return None
    return found if found.tzinfo else None
