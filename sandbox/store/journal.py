"""The journal of a task: one JSON line an operation, only ever appended.

A line is one write to a file opened with O_APPEND, so several processes can share it. It is fsynced with all before it,
or left to the next that is (docs/adr/0013). What a crash tore is skipped when read, and the next append starts on a
line of its own.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator

from pydantic import ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import JournalEntry
from sandbox.store.home import SCHEMA_VERSION, Home, sync_folder

RECENT_BYTES = 1024**2
"""About 3,000 entries."""

_log = logging.getLogger(__name__)


def append(home: Home, task_id: str, entry: JournalEntry, *, synced: bool = True) -> None:
    """Add one entry; with `synced` it outlives a power failure. The caller has checked the task id.

    Raises: `internal` when it cannot be written.
    """
    document = {"schema_version": SCHEMA_VERSION, **entry.model_dump(mode="json", exclude_defaults=True)}
    line = json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(home.journal(task_id), flags, 0o600)
        try:
            is_new = _write_line(fd, line)
            if synced:
                os.fsync(fd)
            if synced and is_new:
                sync_folder(home.journal(task_id).parent)
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The journal of {task_id} cannot be written",
            details=error.strerror or str(error),
            hint="What was asked for is done. Is the disk of the home full? `sandbox task log` lacks this entry.",
        ) from error


def _write_line(fd: int, line: bytes) -> bool:
    """Whether it is the first one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line
    written = os.write(fd, line)
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes were taken")
    return not size


def read(home: Home, task_id: str) -> tuple[JournalEntry, ...]:
    """All entries in the order they were written; damaged lines are left out, with a warning in our log."""
    try:
        lines = home.journal(task_id).read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    found = [_entry(line) for line in lines if line]
    if None in found:
        _log.warning("the journal of %s has %d damaged lines", task_id, found.count(None))
    return tuple(entry for entry in found if entry is not None)


def recent(home: Home, task_id: str) -> Iterator[JournalEntry]:
    """Entries of the last `RECENT_BYTES`, newest first, each read when it is asked for; damaged lines are left out."""
    try:
        with home.journal(task_id).open("rb") as stream:
            start = max(0, stream.seek(0, os.SEEK_END) - RECENT_BYTES)
            stream.seek(start)
            lines = stream.read(RECENT_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    for line in reversed(lines[1:] if start else lines):  # the first may be a part of one
        if line and (entry := _entry(line)) is not None:
            yield entry


def _entry(line: bytes) -> JournalEntry | None:
    try:
        document = json.loads(line)
        if document.pop("schema_version") != SCHEMA_VERSION:
            return None
        return JournalEntry.model_validate(document)
    except (ValueError, KeyError, AttributeError, TypeError, ValidationError):
        return None
