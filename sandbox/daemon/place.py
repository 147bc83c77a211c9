"""Where the daemon of a home is found: its folder, its lock and its sockets.

The daemon holds a flock(2) lock on `serve/lock` while it lives, so a second one on the same home sees the first, and
the kernel frees the lock of a killed one. The file says who holds it. Sockets that a killed daemon left are replaced by
the next one, under the lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISSOCK

from sandbox.command_client import FOLDER, SOCKET
from sandbox.errors import NO_LOCKS, NO_LOCKS_HINT, ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models.model import Model
from sandbox.text import format_utc
from sandbox.version import __version__

API_SOCKET, LOCK = "api.sock", "lock"
_BACKLOG = 128
_RECORD_BYTES = 4096
_FIRST_INHERITED = 3  # sd_listen_fds(3)
_OURS = "space-sandbox-own"
"""In LISTEN_FDNAMES: a socket that the daemon made. A service manager gives its own the name of a unit, or none."""


class DaemonRecord(Model):
    """Who serves a home. `url`: its HTTP address; '' if it serves its sockets only. `is_starting`: not yet."""

    pid: int
    version: str
    started_at: datetime
    url: str = ""
    is_starting: bool = False


_FORK_ENDS_S = 2.0
"""A fork of a daemon that was killed has its lock until it has left it or ended."""


def folder_of(home: Path) -> Path:
    """The private folder of the daemon in a home."""
    return home / FOLDER


def take_lock(home: Path, inherited: int | None) -> int:
    """Lock the home for this daemon; `inherited`: the descriptor that our previous program handed over.

    Raises: `conflict`, with the process that serves this home; `invalid_input` on a file system without locks.
    """
    folder = folder_of(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    fd = inherited
    if fd is None:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _FORK_ENDS_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() < until:
                time.sleep(0.02)
                continue
            os.close(fd)
            raise _already_served_error(home) from error
        except OSError as error:
            os.close(fd)
            raise _no_lock_error(error) from error
        if inherited is None:
            os.ftruncate(fd, 0)  # it names the process that had the lock before
        return fd


def require_unserved(home: Path) -> None:
    """A look before the lock is taken, which spares a second daemon its start. Raises: as `take_lock`."""
    found = find_owner(home)
    if found is not None and found.pid != os.getpid():  # our own: this program replaces its previous one
        raise _already_served_error(home)


def _already_served_error(home: Path) -> SandboxError:
    found = find_owner(home)
    who = "Another process" if found is None else f"Process {found.pid}, started at {format_utc(found.started_at)},"
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{who} serves the home {home} already",
        hint="Use it as it is, or stop it first: sandbox serve --stop",
    )


def _no_lock_error(error: OSError) -> SandboxError:
    """Some network file systems have no locks; each answers with an error number of its own."""
    return SandboxError(ErrorCode.INVALID_INPUT, NO_LOCKS, details=error.strerror or str(error), hint=NO_LOCKS_HINT)


def write_record(lock: int, record: DaemonRecord) -> None:
    """Say in the locked file who holds it."""
    content = record.model_dump_json(exclude_defaults=True).encode()  # an older version knows fewer fields
    os.pwrite(lock, content.ljust(_RECORD_BYTES), 0)


def find_owner(home: Path) -> DaemonRecord | None:
    """The daemon that serves a home now, or starts to."""
    try:
        fd = os.open(folder_of(home) / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # it is not held
        return _read_record(fd)
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)


def is_of_homes_user(home: Path, pid: int) -> bool:
    """Whether a process belongs to the user of a home, whose record names it. The record is that user's: root, who ends
    the daemon of another user's home, must end no process that the user could not end. kill(2) asks for the real and
    the saved id of a process; the effective one, of a server that acts for a user, says little.

    Anybody but root asks for processes of their own.
    """
    try:
        user = os.geteuid() or _find_writer(home, pid)
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError):
        return False
    return user is not None and re.search(rf"^Uid:\t{user}\t{user}\t{user}\t", status, re.MULTILINE) is not None


def _find_writer(home: Path, pid: int) -> int | None:
    """The user of a home, if the folder and the record in it are that user's, and the record names this process. The
    user may replace each of them at any time, so all is asked of what was opened. Raises: OSError; ValueError.
    """
    with ExitStack() as opened:

        def open_next(path: Path | str, flags: int, folder: int | None = None) -> int:
            fd = os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
            opened.callback(os.close, fd)
            return fd

        root = open_next(home, os.O_PATH | os.O_DIRECTORY)
        folder = open_next(FOLDER, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, root)
        lock = open_next(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, folder)
        users = {os.fstat(fd).st_uid for fd in (root, folder, lock)}
        return users.pop() if len(users) == 1 and _read_record(lock).pid == pid else None


def _read_record(lock: int) -> DaemonRecord:
    """Raises: OSError; ValueError."""
    return DaemonRecord.model_validate(json.loads(os.pread(lock, _RECORD_BYTES, 0)))


def open_socket(home: Path, name: str) -> socket.socket:
    """Listen at a socket that only our user can open; it replaces one that a killed daemon left.

    It is bound through a descriptor of its folder, because the path of a socket has 107 bytes at most.
    """
    folder = os.open(folder_of(home), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        before = os.umask(0o177)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{name}")
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot listen at {folder_of(home) / name}", details=error.strerror or str(error)
        ) from error
    finally:
        os.close(folder)
    return listener


def remove_sockets(home: Path, kept: Collection[str]) -> None:
    """Remove the names of our sockets: clients run their commands themselves from now on.

    `kept`: those of the service manager, which goes on listening and starts the daemon at the next command.
    """
    for name in (SOCKET, API_SOCKET):
        if name not in kept:
            (folder_of(home) / name).unlink(missing_ok=True)


class Inherited:
    """What systemd, or our previous program, handed over: sockets by the last part of their path, and the lock.

    A TCP socket has the name ''. The protocol is sd_listen_fds(3); the variables are removed. `activated`: the names of
    those sockets that the service manager made; our previous program passes on which they are. Those are listened at
    again, for the kernel to name our user to clients, which trust no other one: systemd listens as root.
    """

    def __init__(self, environ: os._Environ[str]) -> None:
        count = int(environ.get("LISTEN_FDS", "0")) if environ.get("LISTEN_PID") == str(os.getpid()) else 0
        marks = [*environ.get("LISTEN_FDNAMES", "").split(":"), *[""] * count]
        for name in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
            environ.pop(name, None)
        self.sockets: dict[str, socket.socket] = {}
        self.activated: set[str] = set()
        self.lock: int | None = None
        fds = range(_FIRST_INHERITED, _FIRST_INHERITED + count)
        for fd, mark in zip(fds, marks, strict=False):
            os.set_inheritable(fd, False)
            if S_ISSOCK(os.fstat(fd).st_mode):
                found = socket.socket(fileno=fd)
                name = str(found.getsockname()) if found.family == socket.AF_UNIX else ""
                name = name.rpartition("/")[2]
                self.sockets[name] = found
                if mark != _OURS:
                    found.listen(_BACKLOG)
                    self.activated.add(name)
            else:
                self.lock = fd


@dataclass(frozen=True)
class LockedHome:
    """A home that no other daemon may serve while `lock` is open."""

    path: Path
    lock: int
    inherited: Inherited


def begin(home: Path, environ: os._Environ[str]) -> LockedHome:
    """Lock the home, and say that a daemon starts: to import what it serves takes seconds. Raises: as `take_lock`."""
    inherited = Inherited(environ)
    lock = take_lock(home, inherited.lock)
    if inherited.lock is None:  # else this process serves it already, with its previous program
        record = DaemonRecord(pid=os.getpid(), version=__version__, started_at=datetime.now(UTC), is_starting=True)
        write_record(lock, record)
    return LockedHome(home, lock, inherited)


@contextmanager
def hand_over(descriptors: Mapping[int, bool], environ: os._Environ[str]) -> Iterator[None]:
    """Within it, the next program of this process inherits these descriptors where it looks for them; `exec` there.

    `descriptors`: each with whether the service manager made it. They replace what has these numbers now. If there is
    no next program, each number means again what it did.
    """
    places = range(_FIRST_INHERITED, _FIRST_INHERITED + len(descriptors))
    with ExitStack() as restore:
        before = [_copy_above(place, places.stop, restore) for place in places]
        copies = [_copy_above(fd, places.stop, restore) for fd in descriptors]
        for place, fd, old in zip(places, copies, before, strict=True):
            restore.callback(_put_back, old, place)
            os.dup2(fd, place)
        environ["LISTEN_FDS"], environ["LISTEN_PID"] = str(len(descriptors)), str(os.getpid())
        environ["LISTEN_FDNAMES"] = ":".join("" if is_activated else _OURS for is_activated in descriptors.values())
        try:
            yield
        finally:
            del environ["LISTEN_FDS"], environ["LISTEN_PID"], environ["LISTEN_FDNAMES"]


def _copy_above(fd: int, first: int, closing: ExitStack) -> int:
    """A copy that the next program does not inherit, numbered `first` or higher; -1 if this descriptor is not open."""
    try:
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return -1
    closing.callback(os.close, copy)
    return copy


def _put_back(fd: int, place: int) -> None:
    if fd < 0:
        os.close(place)
    else:
        os.dup2(fd, place, inheritable=False)
