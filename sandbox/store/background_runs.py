"""Records of background runs: the request, the progress and the result.

The process that runs the checks writes the record and holds the lock of the request file with the same run id
(`sandbox.store.stop_requests`). So if a record says `running` and its request file is not locked, the process was
killed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

from pydantic import Field

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ObjectId
from sandbox.models.background import BackgroundFacts
from sandbox.models.model import Model
from sandbox.models.words import RUN_ID_PATTERN
from sandbox.store.home import Home, newest_files, read_record, write_json

PRUNE_SLACK = 50
"""How many records more than are kept trigger pruning when a run is started: sorting takes a millisecond."""
_MOST_NAMED = 5  # in the error about an unknown run

_log = logging.getLogger(__name__)


class RunFailure(Model):
    """The error that ended a run, with the fields of `SandboxError`."""

    code: ErrorCode
    brief: str
    details: str = ""
    hint: str = ""
    reason: str | None = None
    data: dict[str, Any] | None = None


class BackgroundRunRecord(BackgroundFacts):
    """A background run on disk. `repo_id`: of a build of a repository's layers, which has no task. `commit`: the task's
    last commit at the start, or the repository's. Seconds count from `started_at`.
    """

    state: Literal["running", "finished", "failed"] = "running"
    options: dict[str, Any] = Field(default_factory=dict)
    commit: ObjectId | None = None
    ended_s: float | None = None
    failure: RunFailure | None = None

    @property
    def owner_id(self) -> str:
        """The task, or the repository if it has none."""
        return self.task_id or self.repo_id or ""

    def list_check_runs(self) -> list[tuple[str, str]]:
        """The checks of the request that have begun, with the ids of their runs: of one that is running, the last."""
        runs = self.verification.runs if self.verification is not None else self.runs
        found = [(run.check_id, run.run_id) for run in runs]
        for way in () if self.exploration is None else self.exploration.ways:
            found += [(f"{way.name}/{check}", run) for check, run in way.runs.items()]
        if self.state == "running" and self.check_id is not None and self.check_run_id is not None:
            found.append((self.check_id, self.check_run_id))
        return found


def save_background_run(home: Home, record: BackgroundRunRecord) -> None:
    """Replace the record. Not fsynced: a power failure also ends the run."""
    write_json(home.background_run(record.run_id), record.model_dump(mode="json"), synced=False)


def find_background_run(home: Home, run_id: str) -> BackgroundRunRecord:
    """Raises: `not_found` with the newest runs, also for an invalid id; `internal` for a damaged record."""
    path = home.background_run(run_id) if re.fullmatch(RUN_ID_PATTERN, run_id) else None
    record = read_record(path, BackgroundRunRecord) if path is not None else None
    if record is None:
        raise _not_found_error(home, run_id)
    return record


def read_background_run(home: Home, run_id: str) -> BackgroundRunRecord | None:
    """The record of a background run; None if there is none, or it is damaged."""
    with suppress(SandboxError):
        if home.background_run(run_id).exists():
            return find_background_run(home, run_id)
    return None


def _list_newest(home: Home) -> Iterator[BackgroundRunRecord]:
    """The last few records, last written first. Damaged ones are skipped, with a warning."""
    for path in newest_files(home.background_runs)[:_MOST_NAMED]:
        try:
            record = read_record(path, BackgroundRunRecord)
        except SandboxError:
            _log.warning("skipped an unreadable record of a background run: %s", path)
            continue
        if record is not None:
            yield record


def prune_background_runs(home: Home, most: int) -> None:
    """Remove the oldest records beyond `most`, or none for 0. The newest `PRUNE_SLACK` always stay: runs that have not
    ended are among them, because they write their records again.
    """
    if most and sum(1 for _ in home.background_runs.iterdir()) > most + PRUNE_SLACK:
        for path in newest_files(home.background_runs)[max(most, PRUNE_SLACK) :]:
            path.unlink(missing_ok=True)


def _not_found_error(home: Home, run_id: str) -> SandboxError:
    newest = [f"{r.run_id}  {r.owner_id} {' '.join(r.check_ids) or r.operation} {r.state}" for r in _list_newest(home)]
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"There is no background run '{run_id[:100]}'",
        details="\n".join(["The newest runs:", *newest] if newest else ["No run was started in the background yet."]),
        hint="Start the same run again, as with `sandbox check run`: while it is running, the answer has its id.",
    )
