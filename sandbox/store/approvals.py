"""Approvals as stored records, one file each. Changing one requires the lock `approvals`.

Theory. Each gated call reads the approvals that may cover it. So approvals that are over are in their own folder, and
the first folder contains only those that are open, in force or refused: few. A record itself says whether it is over. A
reader of the first folder that holds the lock files away those that are over: a kill in between costs one more read.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sandbox.errors import SandboxError, describe_briefly
from sandbox.models import Approval
from sandbox.store.home import Home, damaged_file_error, read_record, write_json

MOST_RECENT = 200
"""Records that are over and are read for a call: there may be thousands of others."""

_ID = re.compile(r"apr-[a-z2-7]{26}")
_log = logging.getLogger(__name__)


def save_approval(home: Home, approval: Approval) -> Approval:
    """Write one record to the folder of those that are not over."""
    write_json(home.approval(approval.id), approval.model_dump(mode="json"))
    return approval


def find_approval(home: Home, approval_id: str) -> Approval | None:
    """One record; None for an unknown id."""
    if not _ID.fullmatch(approval_id):
        return None
    return _load(home.approval(approval_id)) or _load(home.old_approval(approval_id))  # records move only this way


def list_live(home: Home, is_over: Callable[[Approval], bool]) -> tuple[Approval, ...]:
    """Records that are not over, oldest first. Files away the others. The caller holds the lock."""
    found = list_unfiled(home)
    for approval in filter(is_over, found):
        _file_away(home, approval)
    return tuple(a for a in found if not is_over(a))


def list_unfiled(home: Home) -> list[Approval]:
    """All records that are not filed away, oldest first. Some of them may be over."""
    return _read_folder(home.approvals)


def list_approvals(home: Home) -> tuple[Approval, ...]:
    """All records, oldest first. Damaged ones are skipped, with a warning in our log."""
    found = {a.id: a for folder in (home.approvals, home.old_approvals) for a in _read_folder(folder)}
    return tuple(sorted(found.values(), key=_age_key))


def list_recent(home: Home) -> tuple[Approval, ...]:
    """The records that are not filed away, and the `MOST_RECENT` that were filed away last; oldest first."""
    filed: list[tuple[float, Path]] = []
    with os.scandir(home.old_approvals) as entries:
        for entry in entries:
            with suppress(OSError):  # removed meanwhile
                filed.append((entry.stat(follow_symlinks=False).st_mtime, Path(entry)))
    newest = (path for _, path in heapq.nlargest(MOST_RECENT, filed) if path.match("apr-*.json"))
    found = {a.id: a for a in (*filter(None, map(_load, newest)), *list_unfiled(home))}
    return tuple(sorted(found.values(), key=_age_key))


def delete_old(home: Home, before: datetime) -> None:
    """Delete records that were filed away before this time, without reading them."""
    with os.scandir(home.old_approvals) as entries:
        for entry in entries:
            with suppress(OSError):  # removed meanwhile, or not a file of ours
                if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                    Path(entry).unlink()


def _file_away(home: Home, approval: Approval) -> None:
    path = home.approval(approval.id)
    with suppress(FileNotFoundError):  # deleted by hand
        os.utime(path)  # the time at which we noticed that it is over
        path.replace(home.old_approval(approval.id))


def _read_folder(folder: Path) -> list[Approval]:
    found = map(_load, folder.glob("apr-*.json"))
    return sorted((a for a in found if a is not None), key=_age_key)


def _age_key(approval: Approval) -> tuple[datetime, str]:
    return approval.created_at, approval.id


def _load(path: Path) -> Approval | None:
    """None for a damaged record, and for a copy: using the copy would not use up the original."""
    try:
        found = read_record(path, Approval)
        if found is not None and found.id != path.stem:
            raise damaged_file_error(path, f"it is the record of {found.id}")
        return found
    except SandboxError as error:
        _log.warning("the approval %s cannot be read: %s", path.stem, describe_briefly(error))
        return None
