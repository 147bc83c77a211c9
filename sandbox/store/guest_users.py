"""The users of guests: a uid, and a gid of the same number, for each task and clean room of this host.

The kernel counts inotify instances, pipe pages, descriptors in flight, keys and pending signals by uid. Guests that
share a uid use up each other's share (THREATS S02); guests with a uid of their own cannot.

Several controllers and homes share a host, so the ids in use are kept in one directory of the host, one file for each.
A file is removed when no file of its user is left. Ids are given out in turn, so one that was just returned comes back
last; one that a process still has is passed over. A home that was copied, or whose disk comes back after its ids were
given out again, has files of an id that another home has too: then both have a lease, and the id is free when both have
returned it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.store.home import write_atomically
from sandbox.store.host_ids import read_ids_of_processes, read_owners_of_processes, read_reserved_ids

_LAST = ".last"
_LOCK = ".lock"


@dataclass(frozen=True)
class UserLease:
    """A uid in use: its home, and the task or clean room in it."""

    uid: int
    home: str
    owner: str


@dataclass(frozen=True)
class GuestUsers:
    """The ids of a range, for one home. `folder`: of the host, shared by all homes.

    Raises, each method: `internal` if the folder cannot be used.
    """

    folder: Path
    ids: range
    home: Path
    reserved: Callable[[], tuple[range, ...]] = read_reserved_ids
    owners: Callable[[], frozenset[int]] = read_owners_of_processes
    running: Callable[[], frozenset[int]] = read_ids_of_processes

    def lease(self, owner: str, *, synced: bool) -> int:
        """Return a uid that no account, file or process of this host has. `synced`: a power failure keeps the lease.

        Raises: `quota_exceeded` when there is none.
        """
        with self._locked():
            uid = self._find_free()
            self._write(uid, [UserLease(uid, str(self.home), owner)], synced=synced)
            write_atomically(self.folder / _LAST, f"{uid}\n".encode(), synced=False)
        return uid

    def adopt(self, uid: int, owner: str) -> None:
        """Record a uid whose files are in this home, which was moved or copied here, as leased by it.

        Another home that exists keeps its lease of it.
        """
        if uid in self.ids:
            with self._locked():
                others = [one for one in self._read(uid) if one.home != str(self.home) and Path(one.home).exists()]
                self._write(uid, [UserLease(uid, str(self.home), owner), *others], synced=True)

    def release(self, uid: int) -> None:
        """Return a uid of this home, once no file of it is left. One of another home, or of none, is left alone."""
        self._release(uid, str(self.home))

    def list_leases(self) -> list[UserLease]:
        """The uids that this home uses."""
        return [lease for lease in self.list_all() if lease.home == str(self.home)]

    def list_all(self) -> list[UserLease]:
        """The uids that any home of this host uses."""
        names = sorted(path.name for path in self._entries())
        return [lease for name in names if name.isdigit() for lease in self._read(int(name))]

    def release_of_missing_homes(self) -> list[int]:
        """Return the uids of homes that no longer exist; they are free again."""
        missing = [lease for lease in self.list_all() if not Path(lease.home).exists()]
        for lease in missing:
            self._release(lease.uid, lease.home)
        return [lease.uid for lease in missing]

    def find_free_ids(self) -> list[range]:
        """The parts of the range that no account, group or subordinate range of this host has, in order."""
        return list(subtract_ranges(self.ids, self.reserved()))

    def _find_free(self) -> int:
        free, last = self.find_free_ids(), self._read_last()
        for uids, list_ids in ((_above(free, last), self.owners), (_up_to(free, last), self.running)):
            # Ids up to the last were given out before, and a PID 1 of ours cannot be dumped: that needs the slow look.
            taken = None
            for uid in uids:
                taken = list_ids() if taken is None else taken
                if uid not in taken and not self._path(uid).exists():
                    return uid
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"No user id from {self.ids.start} to {self.ids.stop - 1} is free for a guest",
            details=f"Ids in use: {self.folder}. Accounts and subordinate ids of this host are passed over.",
            hint="Close tasks that are no longer needed, run `sandbox gc`, or set [users] in policies/container.toml.",
        )

    def _release(self, uid: int, home: str) -> None:
        if any(lease.home == home for lease in self._read(uid)):
            with self._locked():
                left = [lease for lease in self._read(uid) if lease.home != home]
                if left:
                    self._write(uid, left, synced=True)
                else:
                    self._path(uid).unlink(missing_ok=True)

    def _write(self, uid: int, leases: Sequence[UserLease], *, synced: bool) -> None:
        first, *others = [{"home": lease.home, "owner": lease.owner} for lease in leases]
        document = {**first, "others": others} if others else first
        write_atomically(self._path(uid), json.dumps(document).encode(), synced=synced)

    def _read(self, uid: int) -> list[UserLease]:
        try:
            document = json.loads(self._path(uid).read_bytes())
            found = [document, *document.get("others", ())]
            return [UserLease(uid, str(one["home"]), str(one["owner"])) for one in found]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _read_last(self) -> int:
        try:
            return int((self.folder / _LAST).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return self.ids.start - 1

    def _path(self, uid: int) -> Path:
        return self.folder / str(uid)

    def _entries(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from self.folder.iterdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the host's ids. It is held for milliseconds, never while a guest runs."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise SandboxError(
                ErrorCode.INTERNAL,
                "The user ids of guests cannot be recorded",
                details=f"{self.folder}: {error.strerror}",
                hint="Set container.users_folder to a directory that all controllers of this host share.",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _above(free: Sequence[range], last: int) -> Iterator[int]:
    for part in free:
        yield from range(max(part.start, last + 1), part.stop)


def _up_to(free: Sequence[range], last: int) -> Iterator[int]:
    for part in free:
        yield from range(part.start, min(part.stop, last + 1))


def subtract_ranges(ids: range, taken: Sequence[range]) -> Iterator[range]:
    """The parts of `ids` that no range of `taken` has. Pure."""
    start = ids.start
    for other in sorted((r for r in taken if r.stop > ids.start and r.start < ids.stop), key=lambda r: r.start):
        if other.start > start:
            yield range(start, other.start)
        start = max(start, other.stop)
    if start < ids.stop:
        yield range(start, ids.stop)
