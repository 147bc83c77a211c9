"""One daemon serves a home: a second one is refused before it loads its program."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from devtools.ready_daemon import find_daemon
from sandbox.daemon import place
from sandbox.daemon.place import DaemonRecord, begin, find_owner, require_unserved, take_lock, write_record
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    fd = take_lock(tmp_path, None)
    yield fd
    os.close(fd)


def _record(pid: int) -> DaemonRecord:
    return DaemonRecord(pid=pid, version="1", started_at=datetime(2026, 1, 2, tzinfo=UTC))


def test_a_home_that_another_process_serves_is_a_conflict(tmp_path: Path, lock: int) -> None:
    write_record(lock, _record(os.getppid()))
    with refused(ErrorCode.CONFLICT) as caught:
        require_unserved(tmp_path)
    assert f"Process {os.getppid()}, started at 2026-01-02" in caught.value.brief


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOLCK, ErrorCode.INVALID_INPUT),
        (errno.EOPNOTSUPP, ErrorCode.INVALID_INPUT),
        (errno.EWOULDBLOCK, ErrorCode.CONFLICT),
    ],
    ids=["no lock server", "no locks", "held, the control"],
)
def test_a_file_system_without_locks_is_not_taken_for_another_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: ErrorCode
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, os.strerror(number))))
    monkeypatch.setattr(place, "_FORK_ENDS_S", 0.1)
    with refused(code):
        take_lock(tmp_path, None)


def test_a_program_that_replaces_its_previous_one_goes_on(tmp_path: Path, lock: int) -> None:
    write_record(lock, _record(os.getpid()))
    require_unserved(tmp_path)


def test_what_a_killed_daemon_left_is_no_conflict(tmp_path: Path) -> None:
    require_unserved(tmp_path)
    fd = take_lock(tmp_path, None)
    write_record(fd, _record(os.getppid()))
    os.close(fd)
    require_unserved(tmp_path)


def test_a_daemon_that_starts_is_not_taken_for_the_one_before_it(tmp_path: Path) -> None:
    before = take_lock(tmp_path, None)
    write_record(before, _record(os.getppid()))
    assert take_lock(tmp_path, before) == before, "our previous program handed the lock over"
    assert find_daemon(tmp_path) == _record(os.getppid()), "control: its record stays"
    os.close(before)
    after = begin(tmp_path, os.environ).lock
    assert find_daemon(tmp_path) is None
    starting = find_owner(tmp_path)
    assert starting is not None
    assert (starting.pid, starting.is_starting) == (os.getpid(), True)
    write_record(after, _record(os.getpid()))
    assert find_daemon(tmp_path) == _record(os.getpid())
    os.close(after)
