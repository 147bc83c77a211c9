"""The hashes our own edits left, so that a stale hash can be told from the guest's work.

Appended and never synced: nothing is decided by it. What a crash loses makes one message less precise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.models import PatchResult
from sandbox.store.home import Home, write_atomically

_TAIL = 1 << 20
"""How much of the record is looked at, about 7,000 edits; a longer one is cut to its half."""


def record_edits(home: Home, task_id: str, result: PatchResult) -> None:
    """Remember what an edit left; the caller holds the task's lock."""
    hashes = {f.path: f.sha256_after for f in result.files}
    hashes |= {f.old_path: None for f in result.files if f.kind == "renamed" and f.old_path is not None}
    lines = "".join(json.dumps([path, sha256]) + "\n" for path, sha256 in hashes.items())
    path = _path(home, task_id)
    with suppress(OSError):  # an edit that is made is not taken back for a remark about it
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, lines.encode())
            long = os.fstat(fd).st_size > 2 * _TAIL
        finally:
            os.close(fd)
        if long:
            write_atomically(path, _tail(path))


def left_by_edit(home: Home, task_id: str, path: str, sha256: str | None) -> bool:
    """Whether an edit of ours left this file with this hash (None: removed it)."""
    return [path, sha256] in _entries(home, task_id)


def _entries(home: Home, task_id: str) -> Iterator[object]:
    with suppress(OSError):
        for line in _tail(_path(home, task_id)).splitlines():
            with suppress(ValueError):  # a line torn by a crash
                yield json.loads(line)


def _tail(path: Path) -> bytes:
    with path.open("rb") as stream:
        whole = stream.seek(0, os.SEEK_END) <= _TAIL
        stream.seek(0 if whole else -_TAIL, os.SEEK_SET if whole else os.SEEK_END)
        return stream.read() if whole else stream.read().partition(b"\n")[2]


def _path(home: Home, task_id: str) -> Path:
    return home.repositories / "edits" / f"{task_id}.jsonl"
