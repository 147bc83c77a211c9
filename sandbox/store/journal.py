"""The journals of each task and of the home: one JSON line for each operation, append-only.

A line is one write to a file opened with O_APPEND, under the file's lock, so several processes can share it. It is
chained to the bytes before it (`sandbox.store.journal_chain`). It is fsynced, or left to the next entry that is fsynced
(docs/adr/0013). Readers skip a line that a crash tore, and the next append starts on a new line.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import JournalEntry
from sandbox.store.home import SCHEMA_VERSION, Home, sync_folder
from sandbox.store.journal_chain import ChainHead, find_tail, sha256

if TYPE_CHECKING:
    from sandbox.store import backward_lines
else:  # writing an entry does not read others (docs/adr/0080)
    backward_lines = LazyModule("sandbox.store.backward_lines")

HOME_JOURNAL = "home"
"""Name of the home's journal, for operations outside tasks."""

ANCHOR = "anchor"
"""The operation of which an entry in the home's journal has the hash of another journal."""

RECENT_BYTES = 1024**2
"""About 2,000 entries."""

LOCK_TIMEOUT_S = 10.0
"""How long an append waits for other processes, which need less than a millisecond each."""

_log = logging.getLogger(__name__)


def append_entry(home: Home, name: str, entry: JournalEntry, *, synced: bool = True) -> ChainHead:
    """Append one entry to the journal of a task or of the home. Returns its place in the chain.

    With `synced` it survives a power failure. The caller has checked the task id. Raises: `internal` if it cannot be
    written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(home.journal(name), flags, 0o600)
        try:
            with _locked(fd):
                head = _write_line(fd, entry)
            if synced:
                os.fsync(fd)
            if synced and head.seq == 1:
                sync_folder(home.journal(name).parent)
        finally:
            os.close(fd)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The journal of {name} cannot be written",
            details=error.strerror or str(error),
            hint="The operation itself was done, but the journal lacks this entry. Is the disk of the home full?",
        ) from error
    return head


@contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Lock the file. The kernel frees the lock at exit. Raises: OSError if another holds it for `LOCK_TIMEOUT_S`."""
    until = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.001)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _write_line(fd: int, entry: JournalEntry) -> ChainHead:
    tail = find_tail(fd, os.fstat(fd).st_size)
    start = b"\n" if tail.is_torn else b""
    prev = sha256(tail.content + start)
    place = f'{{"schema_version":{SCHEMA_VERSION},"seq":{tail.seq + 1},"prev":"{prev}",'
    line = place.encode() + _serialize_entry(entry)[1:]
    written = os.write(fd, start + line + b"\n")
    if written != len(start) + len(line) + 1:
        raise OSError(f"only {written} of {len(line)} bytes were written")
    return ChainHead(tail.seq + 1, sha256(line))


def read_head(home: Home, name: str) -> ChainHead | None:
    """The last entry of a journal's chain; None without one. Raises: OSError."""
    with home.journal(name).open("rb") as stream:
        tail = find_tail(stream.fileno(), os.fstat(stream.fileno()).st_size)
    return ChainHead(tail.seq, sha256(tail.content.split(b"\n")[0])) if tail.seq else None


def _serialize_entry(entry: JournalEntry) -> bytes:
    """Serialize to ASCII, so that no reader takes a character for the end of a line."""
    text = entry.model_dump_json(exclude_defaults=True, exclude={"seq", "prev"})
    if not text.isascii():
        text = json.dumps(json.loads(text), ensure_ascii=True, separators=(",", ":"))
    return text.encode()


def read_entries(home: Home, name: str) -> tuple[JournalEntry, ...]:
    """All entries in the order they were written. Damaged lines are skipped, with a warning in our log.

    Memory and time grow with the journal: about 2 KB and 40 microseconds for each entry.
    """
    try:
        with home.journal(name).open("rb") as stream:
            return _keep_undamaged(name, (parse_entry(line) for raw in stream if (line := raw.rstrip(b"\n"))))
    except FileNotFoundError:
        return ()


def read_last_entries(home: Home, name: str, limit: int) -> tuple[JournalEntry, ...]:
    """The newest `limit` entries in the order they were written, as `read_entries`, but no more of the file is read."""
    return _keep_undamaged(name, map(parse_entry, _read_lines_backward(home, name)), limit)[::-1]


def _keep_undamaged(
    name: str, found: Iterable[JournalEntry | None], limit: int | None = None
) -> tuple[JournalEntry, ...]:
    entries: list[JournalEntry] = []
    damaged = 0
    for entry in found:
        if entry is None:
            damaged += 1
            continue
        if len(entries) == limit:
            break
        entries.append(entry)
    if damaged:
        _log.warning("the journal of %s has %d damaged lines", name, damaged)
    return tuple(entries)


def read_recent_entries(home: Home, task_id: str) -> Iterator[JournalEntry]:
    """Entries of the last `RECENT_BYTES`, newest first, read and parsed as needed. Damaged lines are skipped."""
    return (entry for entry, _ in read_entries_backward(home, task_id, RECENT_BYTES))


def read_entries_backward(home: Home, name: str, max_bytes: int | None = None) -> Iterator[tuple[JournalEntry, int]]:
    """Entries with the length of their lines in bytes, newest first, read and parsed as needed. Damaged lines are
    skipped. `max_bytes`: no more of the file is read.
    """
    for line in _read_lines_backward(home, name, max_bytes):
        entry = parse_entry(line)
        if entry is not None:
            yield entry, len(line)


def _read_lines_backward(home: Home, name: str, max_bytes: int | None = None) -> Iterator[bytes]:
    try:
        with home.journal(name).open("rb", buffering=0) as stream:
            yield from filter(None, backward_lines.read_lines_backward(stream.fileno(), max_bytes))
    except FileNotFoundError:
        return


def parse_entry(line: bytes) -> JournalEntry | None:
    """Parse one line; None if it is damaged."""
    try:
        document = json.loads(line)
        if document.pop("schema_version") != SCHEMA_VERSION:
            return None
        return JournalEntry.model_validate(document)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, ValidationError):
        return None
