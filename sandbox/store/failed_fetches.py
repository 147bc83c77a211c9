"""Fetches of packages that failed a short time ago, so that the next command need not wait for the same failure.

dependencies/failures/DIGEST.json: the error of the last attempt for these manifests (store/layers.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.model import Model
from sandbox.private_folders import make_private
from sandbox.store.home import Home, read_record, write_json

RECENT_S = 300.0
"""How long a failure counts. Long enough for the checks of one sitting, short enough for a registry that restarts."""


class FailedFetch(Model):
    """The error that ended a fetch, and when."""

    code: ErrorCode
    brief: str
    details: str
    hint: str
    reason: str | None = None
    failed_at: datetime


def save_failed_fetch(home: Home, request: str, error: SandboxError) -> None:
    """Remember the error of a fetch. `request`: the digest of what was asked for."""
    path = _path(home, request)
    make_private(path.parent)
    failed = FailedFetch(
        code=error.code,
        brief=error.brief,
        details=error.details,
        hint=error.hint,
        reason=error.reason,
        failed_at=datetime.now(UTC),
    )
    write_json(path, failed.model_dump(mode="json"), synced=False)


def find_failed_fetch(home: Home, request: str) -> FailedFetch | None:
    """The last failure, if it is recent; an older one is removed, as is a record that cannot be read."""
    path = _path(home, request)
    try:
        found = read_record(path, FailedFetch)
        if found is None:
            return None
        if 0 <= (datetime.now(UTC) - found.failed_at).total_seconds() < RECENT_S:  # a clock may be set back
            return found
    except SandboxError:
        pass
    forget_failed_fetch(home, request)
    return None


def forget_failed_fetch(home: Home, request: str) -> None:
    """The next attempt asks the registry."""
    _path(home, request).unlink(missing_ok=True)


def _path(home: Home, request: str) -> Path:
    return home.repositories / f"dependencies/failures/{request}.json"
