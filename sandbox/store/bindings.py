"""What a run of a clean room was bound to, beside its record: a receipt says it.

A run that is no evidence has none: one after a check that failed in its room, and a repetition that passed.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.models import CheckRun
from sandbox.store.home import Home, read_content, read_record, write_json
from sandbox.store.runs import find_owner, is_run_id
from sandbox.store.verdicts import Binding, is_bound

SUFFIX = ".binding"
_log = logging.getLogger(__name__)


def save_binding(logs: Path, run_id: str, binding: Binding) -> None:
    """Write it beside the run. As its logs it is not synced; a failure loses a later receipt and no verdict."""
    try:
        write_json(logs / f"{run_id}{SUFFIX}", binding.model_dump(mode="json"), synced=False)
    except OSError as error:
        _log.warning("what %s was bound to is not kept: %s", run_id, error)


def is_evidence(home: Home, owner: str, run_id: str) -> bool:
    """Whether it is kept what a run of this task or repository was bound to."""
    return (home.logs(owner) / f"{run_id}{SUFFIX}").is_file()


def find_binding(home: Home, run: CheckRun) -> Binding | None:
    """What a run was bound to; None if that is not kept, or is not about this run.

    A verdict may outlive the run's record, with the task that it was given in: then it is in the verdict cache.
    """
    found = _read_beside(home, run) or _search_verdicts(home, run)
    return found if found is not None and is_bound(run, found) else None


def _read_beside(home: Home, run: CheckRun) -> Binding | None:
    if not is_run_id(run.run_id):
        return None
    try:
        return read_record(home.logs(find_owner(home, run.run_id)) / f"{run.run_id}{SUFFIX}", Binding)
    except SandboxError:
        return None


def _search_verdicts(home: Home, run: CheckRun) -> Binding | None:
    wanted = run.run_id.encode()
    for path in home.verdict("any").parent.glob("[0-9a-f]*.json"):
        try:
            content = read_content(path)
            if content is not None and wanted in content:
                document = json.loads(content)
                if document["run"]["run_id"] == run.run_id:
                    return Binding.model_validate(document["binding"])
        except (SandboxError, ValueError, KeyError, TypeError, RecursionError, ValidationError):
            continue
    return None
