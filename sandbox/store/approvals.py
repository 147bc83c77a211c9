"""Approvals as stored records, one file each; whoever changes one holds the lock `approvals`."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from datetime import datetime, timedelta

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.models import Approval
from sandbox.store.home import Home, read_json, write_json

KEPT = timedelta(days=30)
"""How long an approval that is over stays listed."""

_ID = re.compile(r"apr-[a-z2-7]{26}")
_log = logging.getLogger(__name__)


def save(home: Home, approval: Approval) -> Approval:
    """Write one record."""
    write_json(home.approval(approval.id), approval.model_dump(mode="json"))
    return approval


def find(home: Home, approval_id: str) -> Approval | None:
    """One record, None for an id that there is not."""
    return _load(home, approval_id) if _ID.fullmatch(approval_id) else None


def list_all(home: Home) -> tuple[Approval, ...]:
    """All records, oldest first; damaged ones are skipped with a warning in our log."""
    found = [_load(home, path.stem) for path in (home.repositories / "approvals").glob("apr-*.json")]
    return tuple(sorted((a for a in found if a is not None), key=lambda a: (a.created_at, a.id)))


def forget_old(home: Home, now: datetime) -> None:
    """Delete records that have been over for a month."""
    for approval in list_all(home):
        if approval.expires_at + KEPT < now:
            with suppress(FileNotFoundError):
                home.approval(approval.id).unlink()


def _load(home: Home, approval_id: str) -> Approval | None:
    try:
        document = read_json(home.approval(approval_id))
        return None if document is None else Approval.model_validate(document)
    except (SandboxError, ValidationError) as error:
        _log.warning("the approval %s cannot be read: %s", approval_id, error)
        return None
