"""One admission to the disk for every writer of a controller: asked before it writes, counted until it has written.

Theory. Three levels of free space on the home's file system. Below `disk.min_free_bytes` no large writer starts: a
clone, a checkout, a check, an artifact, an image. Below `disk.reserve_bytes` no writer starts at all: no edit,
snapshot, commit or journal entry. The reserve itself is for what frees space or ends work: closing, cleaning,
removing, `gc`. They have to write too (a record, a journal entry, locks), so a full disk could otherwise never be
emptied by us. Other programs may take the reserve as well; therefore a spare directory lies in the home, with a file of
`SPARE_BYTES`. It is deleted when less than that is free and one of these operations begins, and made again afterwards.

A writer names how much it may need before it starts. Until it ends, this is subtracted for all other threads of the
controller: free space that two writers see must not be given to both.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.byte_sizes import format_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.git.unfinished_packs import FETCH_LIMIT
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.store.home import Home

if TYPE_CHECKING:
    from sandbox.config import DiskSettings
    from sandbox.store import storage_record
else:  # loaded where a limit is set
    storage_record = LazyModule("sandbox.store.storage_record")

SPARE_BYTES, SPARE_FILES = 1024**2, 32
"""What the spare directory holds: a file of this size, and empty files, for a disk that has no more inodes."""

_BLOCKS = "blocks"


class Writer(StrEnum):
    """What asks for disk space, as a noun for messages."""

    FETCH = "a clone or fetch"
    CHECKOUT = "a checkout"
    CHECK = "a check"
    ARTIFACT = "an artifact"
    IMAGE = "an image build"
    LAYER = "a layer of packages"
    PACKING = "packing a clone"
    EDIT = "an edit"
    SNAPSHOT = "a snapshot"
    COMMIT = "a commit"
    RESTORE = "a restore"
    LOOK = "a comparison of changed files"
    RECORD = "another operation"


_NEVER_FROM_THE_RESERVE = frozenset({Writer.PACKING, Writer.SNAPSHOT})
"""Parts of `gc` and of cleaning that can be left out, and could take the whole reserve."""

_LARGE = frozenset({Writer.FETCH, Writer.CHECKOUT, Writer.CHECK, Writer.ARTIFACT, Writer.IMAGE, Writer.LAYER})


@dataclass(frozen=True)
class Demand:
    """The most that a writer may add to the disk: allocated bytes, and names."""

    bytes: int = 0
    files: int = 0

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.bytes + other.bytes, self.files + other.files)

    def __sub__(self, other: Demand) -> Demand:
        return Demand(self.bytes - other.bytes, self.files - other.files)


NO_DEMAND = Demand()

RECORD_DEMAND = Demand(64 * 1024, 4)
"""A journal entry with 200 files in two journals, and a record."""


class DiskAdmission:
    """Admits the writers of one controller to the file system of its home. Safe for threads."""

    def __init__(
        self,
        home: Home,
        settings: Callable[[], DiskSettings],
        room_of: Callable[[Path], FreeSpace] = FreeSpace.of,
        max_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`max_bytes`: what the home may hold, by its last measurement; 0: no limit."""
        self._home = home
        self._settings = settings
        self._room_of = room_of
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._in_flight = Demand()
        self._thread = threading.local()

    @contextmanager
    def admit(self, writer: Writer, demand: Demand = NO_DEMAND) -> Iterator[None]:
        """Let the body write up to `demand`; the demand counts for all threads until the body ends.

        Raises: `quota_exceeded` before the body when less would stay free than must.
        """
        self._take(writer, demand)
        try:
            yield
        finally:
            self._give_back(demand)

    def require(self, writer: Writer, demand: Demand = NO_DEMAND) -> None:
        """Ask early, before work that does not write yet. Raises: as `admit`."""
        with self.admit(writer, demand):
            pass

    @contextmanager
    def admit_transfer(self, limit_bytes: int) -> Iterator[int]:
        """For a writer that cannot name its demand: yields how many bytes it may write, at most `limit_bytes`.

        Half of what may be used, so that a second transfer gets a share and the index of a pack has room. Raises:
        `quota_exceeded` when no space may be used, or the body filled its share.
        """
        self._ensure_spare()
        self._require_within_limit(Writer.FETCH)
        with self._lock:
            room = self._room_of(self._home.root)
            usable = self._usable(Writer.FETCH, room)
            if usable.bytes <= 0 or usable.files <= 0:
                raise self._refusal(Writer.FETCH, NO_DEMAND, room)
            share = Demand(min(limit_bytes, max(usable.bytes // 2, 1)))
            self._in_flight += share
        try:
            yield share.bytes
        except SandboxError as error:
            if error.reason == FETCH_LIMIT and share.bytes < limit_bytes:
                raise self._refusal(Writer.FETCH, Demand(share.bytes), room, error.details) from error
            raise
        finally:
            self._give_back(share)

    @contextmanager
    def use_reserve(self) -> Iterator[None]:
        """In the body this thread may use the reserve: it frees space, or ends work."""
        was, self._thread.frees = self._may_use_reserve, True
        self._delete_spare_if_needed()
        try:
            yield
        finally:
            self._thread.frees = was
            self._ensure_spare()

    @property
    def _may_use_reserve(self) -> bool:
        return getattr(self._thread, "frees", False)

    def _take(self, writer: Writer, demand: Demand) -> None:
        self._ensure_spare()
        self._require_within_limit(writer)
        with self._lock:
            room = self._room_of(self._home.root)
            left = self._usable(writer, room) - demand
            if left.bytes < 0 or left.files < 0:
                raise self._refusal(writer, demand, room)
            self._in_flight += demand

    def _require_within_limit(self, writer: Writer) -> None:
        """Raises: `quota_exceeded` for a large writer while the home holds more than it may."""
        if writer not in _LARGE or self._may_use_reserve or not (limit := self._max_bytes()):
            return
        measured = storage_record.read_measured(self._home)
        if measured is not None and measured.bytes > limit:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"The home holds too much for {writer.value}",
                details=f"{self._home.root}: it held {_show(measured.bytes, None)} when it was measured; "
                f"storage.max_bytes allows {_show(limit, None)}.",
                hint="Close tasks with --delete, then run `sandbox gc`, which measures again; `sandbox storage` shows "
                "who holds what. Or raise storage.max_bytes in the configuration.",
                reason="storage",
                data={"writer": writer.name.lower(), "used_bytes": measured.bytes, "max_bytes": limit},
            )

    def _give_back(self, demand: Demand) -> None:
        with self._lock:
            self._in_flight -= demand

    def _usable(self, writer: Writer, room: FreeSpace) -> Demand:
        """What is free above the floor of this writer and is not promised to another thread. What is promised does not
        stop what frees space.
        """
        free = Demand(room.free_bytes, room.free_files if room.free_files is not None else 1 << 62)
        return free if self._uses_reserve(writer) else free - self._floor(writer) - self._in_flight

    def _uses_reserve(self, writer: Writer) -> bool:
        return self._may_use_reserve and writer not in _NEVER_FROM_THE_RESERVE

    def _floor(self, writer: Writer) -> Demand:
        if self._uses_reserve(writer):
            return NO_DEMAND
        disk = self._settings()
        reserve = Demand(disk.reserve_bytes, disk.reserve_files)
        if writer not in _LARGE:
            return reserve
        return Demand(max(disk.min_free_bytes, reserve.bytes), max(disk.min_free_files, reserve.files))

    def _refusal(self, writer: Writer, demand: Demand, room: FreeSpace, evidence: str = "") -> SandboxError:
        floor = self._floor(writer)
        free = _show(room.free_bytes, room.free_files)
        flying = self._in_flight
        promised = f" (of it {_show(flying.bytes, flying.files)} for operations in progress)" if flying.bytes else ""
        needed = f"it may need {_show(demand.bytes, demand.files)}; " if demand != NO_DEMAND else ""
        details = f"{needed}{free} are free{promised}, {_show(floor.bytes, floor.files)} must stay free."
        return SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"Too little disk space is free for {writer.value}",
            details=f"{self._home.root}: {details}\n{evidence}".rstrip(),
            hint="Close tasks with --delete, run `sandbox gc`, or lower disk.min_free_bytes, disk.min_free_files or "
            "disk.reserve_bytes in the configuration.",
            reason="disk",
            data={"writer": writer.name.lower(), "needed_bytes": demand.bytes, "free_bytes": room.free_bytes}
            | {"reserved_bytes": floor.bytes},
        )

    def _delete_spare_if_needed(self) -> None:
        with suppress(OSError):
            room = self._room_of(self._home.root)
            if room.free_bytes < SPARE_BYTES or (room.free_files is not None and room.free_files < SPARE_FILES):
                shutil.rmtree(self._home.spare, ignore_errors=True)

    def _ensure_spare(self) -> None:
        """Make the spare directory if it is missing and twice its size is free. Without a reserve there is none."""
        if (self._home.spare / _BLOCKS).exists() or not self._settings().reserve_bytes:
            return
        with suppress(OSError):
            room = self._room_of(self._home.root)
            enough_files = room.free_files is None or room.free_files > 2 * SPARE_FILES
            if room.free_bytes > 2 * SPARE_BYTES and enough_files:
                _make_spare(self._home.spare)


def _make_spare(folder: Path) -> None:
    """Allocate blocks, not a hole: only they are free again after the file is deleted. It is made last."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(SPARE_FILES):
        (folder / str(number)).touch(mode=0o600)
    fd = os.open(folder / _BLOCKS, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SPARE_BYTES)
    except OSError:
        (folder / _BLOCKS).unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def _show(size: int, files: int | None) -> str:
    """`files`: None if the file system does not count them."""
    return format_bytes(size) if files is None else f"{format_bytes(size)} and {files:,} files"
