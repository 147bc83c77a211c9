"""The users of guests: a uid, and a gid of the same number, for each task and clean room of this host.

The kernel counts inotify instances, pipe pages, descriptors in flight, keys and pending signals by uid. Guests that
share a uid use up each other's share (THREATS S02); guests with a uid of their own cannot.

Several controllers and homes share a host, so the ids in use are kept in one directory of the host, one file for each.
A file is removed when no file of its user is left. Ids are given out in turn, so one that was just returned comes back
last; one that a process still has is passed over. Our PID 1 cannot be dumped and is shown as root's, so an id that may
have been given out before needs the slow look at every process. One look finds many ids without one, and such an id
gets a process only by a lease: `.known` says up to which id that is so. In a new folder that is the end of the range;
without `.known`, or with that of another `.last`, which an older version wrote, it is none. A home that was copied, or
whose disk comes back after its ids were given out again, has files of an id that another home has too: then both have a
lease, and the id is free when both have returned it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.private_folders import make_private
from sandbox.store.home import write_atomically
from sandbox.store.host_ids import read_ids_of_processes, read_owners_of_processes, read_reserved_ids
from sandbox.store.lockfile import lock_within

_LAST = ".last"
_KNOWN = ".known"
_MOST_KNOWN = 1024  # ids after the one that is given out, of one slow look
_LOCK = ".lock"
_WAIT_S = 60.0


@dataclass(frozen=True)
class UserLease:
    """A uid in use: its home, and the task or clean room in it."""

    uid: int
    home: str
    owner: str


@dataclass(frozen=True)
class _Turn:
    """`last`: the id that was given out last. Of those above it, none up to `known` has a process of ours."""

    last: int
    known: int


@dataclass(frozen=True)
class GuestUsers:
    """The ids of a range, for one home. `folder`: of the host, shared by all homes.

    Raises, each method: `internal` if the folder cannot be used, `timeout` if another controller has locked it.
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
            turn = self._find_free()
            self._write(turn.last, [UserLease(turn.last, str(self.home), owner)], synced=synced)
            self._write_turn(turn)
        return turn.last

    def adopt(self, uid: int, owner: str) -> None:
        """Record a uid whose files are in this home, which was moved or copied here, as leased by it.

        Another home that exists keeps its lease of it.
        """
        if uid in self.ids:
            with self._locked():
                others = [one for one in self._read(uid) if one.home != str(self.home) and _exists(Path(one.home))]
                self._write(uid, [UserLease(uid, str(self.home), owner), *others], synced=True)
                turn = self._read_turn()
                if turn.last < uid <= turn.known:  # when it is returned, a process of it may be alive
                    self._write_turn(_Turn(turn.last, uid - 1))

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
        missing = [lease for lease in self.list_all() if not _exists(Path(lease.home))]
        for lease in missing:
            self._release(lease.uid, lease.home)
        return [lease.uid for lease in missing]

    def find_free_ids(self) -> list[range]:
        """The parts of the range that no account, group or subordinate range of this host has, in order."""
        return list(subtract_ranges(self.ids, self.reserved()))

    def _find_free(self) -> _Turn:
        """The next id in turn that is free, and up to which id none has a process of ours."""
        free, turn = self.find_free_ids(), self._read_turn()
        taken = None
        for uid in _between(free, turn.last, turn.known):
            taken = self.owners() if taken is None else taken
            if self._is_unused(uid, taken):
                return _Turn(uid, turn.known)
        taken = self.running()
        for uid in chain(_between(free, turn.last), _between(free, -1, turn.last)):
            if self._is_unused(uid, taken):
                return _Turn(uid, self._find_known(free, uid, taken))
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"No user id from {self.ids.start} to {self.ids.stop - 1} is free for a guest",
            details=f"Ids in use: {self.folder}. Accounts and subordinate ids of this host are passed over.",
            hint="Close tasks that are no longer needed, run `sandbox gc`, or set [users] in policies/container.toml.",
        )

    def _is_unused(self, uid: int, taken: frozenset[int]) -> bool:
        return uid not in taken and not _exists(self._path(uid))

    def _find_known(self, free: Sequence[range], uid: int, taken: frozenset[int]) -> int:
        """The last of the ids that follow without one that is leased or has a process."""
        known = uid
        for following in islice(_between(free, uid), _MOST_KNOWN):
            if not self._is_unused(following, taken):
                break
            known = following
        return known

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
        """None of a damaged file: its id is given to no guest, and each home with files of it records it again."""
        try:
            content = self._path(uid).read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:  # another home may have a lease in it
            raise _build_error("read", self._path(uid), error) from error
        try:
            document = json.loads(content)
            found = [document, *document.get("others", ())]
            return [UserLease(uid, str(one["home"]), str(one["owner"])) for one in found]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []

    def _read_turn(self) -> _Turn:
        """No id is known to be unused if a file is missing or damaged, or they do not belong together."""
        last, known = self._read_numbers(_LAST), self._read_numbers(_KNOWN)
        if len(last) == 1 and len(known) == 2 and known[0] == last[0]:
            return _Turn(*known)
        start = last[0] if last else self.ids.start - 1
        return _Turn(start, start)

    def _read_numbers(self, name: str) -> list[int]:
        try:
            return [int(word) for word in (self.folder / name).read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            return []

    def _write_turn(self, turn: _Turn) -> None:
        write_atomically(self.folder / _LAST, f"{turn.last}\n".encode(), synced=False)
        write_atomically(self.folder / _KNOWN, f"{turn.last} {turn.known}\n".encode(), synced=False)

    def _path(self, uid: int) -> Path:
        return self.folder / str(uid)

    def _entries(self) -> Iterator[Path]:
        with suppress(FileNotFoundError, PermissionError):  # that of root's controllers, in which no other user has ids
            yield from self.folder.iterdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the host's ids. It is held for milliseconds, never while a guest runs; a controller that was
        stopped in them holds it for as long. Raises: `timeout`.
        """
        try:
            make_private(self.folder)
            fd = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _build_error("recorded", self.folder, error) from error
        try:
            if not lock_within(fd, _WAIT_S):
                raise _busy_error(self.folder / _LOCK)
            if all(path.name == _LOCK for path in self._entries()):  # a new folder: no id was given out
                self._write_turn(_Turn(self.ids.start - 1, self.ids.stop - 1))
            yield
        finally:
            os.close(fd)


def _build_error(what: str, path: Path, error: OSError) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The user ids of guests cannot be {what}",
        details=f"{path}: {error.strerror}",
        hint="Set container.users_folder to a directory that all controllers of this host share.",
    )


def _busy_error(lock: Path) -> SandboxError:
    return SandboxError(
        ErrorCode.TIMEOUT,
        f"The user ids of guests were locked by another controller for {_WAIT_S:.0f} s",
        details=str(lock),
        hint="Repeat the command. If it fails again: `lslocks` names the process that holds it; resume or end it.",
    )


def _exists(path: Path) -> bool:
    """Raises: OSError where it is unknown, for which `Path.exists` says no from Python 3.14 on."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _between(free: Sequence[range], after: int, last: int = sys.maxsize) -> Iterator[int]:
    """The ids above `after`, up to `last`."""
    for part in free:
        yield from range(max(part.start, after + 1), min(part.stop, last + 1))


def subtract_ranges(ids: range, taken: Sequence[range]) -> Iterator[range]:
    """The parts of `ids` that no range of `taken` has. Pure."""
    start = ids.start
    for other in sorted((r for r in taken if r.stop > ids.start and r.start < ids.stop), key=lambda r: r.start):
        if other.start > start:
            yield range(start, other.start)
        start = max(start, other.stop)
    if start < ids.stop:
        yield range(start, ids.stop)
