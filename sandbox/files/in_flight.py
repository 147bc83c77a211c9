"""Signs that a guest keeps open files where no table of a process shows them (docs/adr/0022). The kernel does not say
how large such files are, but it shows where they can be:

- in a message that was not received. The socket that will receive it says how many descriptors wait there (`scm_fds`
  in proc_pid_fdinfo(5), Linux 5.5); of a socket that is itself in flight, the one that will receive that says so;
- behind a Unix socket that no process has in its table: one thread waits in poll(2) for it, another closes it. The
  list of its network namespace still has it (`/proc/PID/net/unix`), and a guest cannot make a namespace;
- in a system call that waits: sendfile(2) and splice(2) keep the file that they read or write, sendmsg(2) keeps the
  descriptors of its message, whatever another thread closes. `/proc/TID/syscall` names the call of a waiting thread.
  A lock that is waited for keeps a file too, but then the holder of the lock has it in a table.
"""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from re import MULTILINE

from sandbox.files.file_tables import MAX_FILES, choose_one_of_each_table
from sandbox.lazy_pattern import lazy_pattern

_IN_FLIGHT = lazy_pattern(rb"^scm_fds:\s*0*[1-9]", MULTILINE)
_KEEPING_CALLS: Mapping[str, frozenset[bytes]] = {  # sendfile, sendmsg, splice, sendmmsg
    "x86_64": frozenset([b"40", b"46", b"275", b"307"]),
    "aarch64": frozenset([b"71", b"211", b"76", b"269"]),
}
_INODE_COLUMN = 6  # of /proc/net/unix
_MAX_LIST_BYTES = 16 * 1024**2


def has_files_in_flight(descriptor: str) -> bool:
    """Whether a socket has some that were not received, by its path in proc."""
    table, number = os.path.split(descriptor)
    with suppress(OSError):
        return _IN_FLIGHT.search((Path(table).with_name("fdinfo") / number).read_bytes()) is not None
    return False


def waits_in_keeping_call(thread: Path) -> bool:
    """Whether a thread sleeps in a system call that may keep files, by its directory in proc. A wait for a disk (state
    D) does not count: each copy of a file has some, and they last no longer than the work of the disk.
    """
    with suppress(OSError):  # it has ended
        number = (thread / "syscall").read_bytes().partition(b" ")[0]
        if number in _KEEPING_CALLS.get(platform.machine(), frozenset()):
            state = (thread / "stat").read_bytes().rpartition(b") ")[2]  # proc_pid_stat(5): after the name
            return state.startswith(b"S")
    return False


class UnixSockets:
    """The Unix sockets of the network namespaces of a guest. A socket is lost if it was there before the tables of
    all processes were read, and is there afterwards, and was in none of them.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._before: dict[int, tuple[Path, set[int]]] = {}

    def list_of(self, thread: Path) -> None:
        """List the sockets of a thread's namespace, if it is a new one. Call it before the thread's table is read."""
        with suppress(OSError):  # it has ended
            namespace = (thread / "ns" / "net").stat().st_ino
            if namespace not in self._before:
                self._before[namespace] = thread, _list_sockets(thread)

    def find_lost(self, in_tables: set[int]) -> Iterator[bool]:
        """Whether sockets are in no table: one answer for each file that is examined, True only at the end.

        Other processes of the same namespace are asked only if it seems so, and not for more than `MAX_FILES`.
        """
        left = MAX_FILES
        for namespace, (thread, before) in self._before.items():
            lost = (before - in_tables) & _list_sockets(thread)
            for inode in islice(self._stat_files_of_others(namespace) if lost else (), left):
                left -= 1
                lost.discard(inode)
                yield False
                if not lost:
                    break
            if lost:
                yield True
                return

    def _stat_files_of_others(self, namespace: int) -> Iterator[int]:
        """Inodes of the sockets of all processes of a namespace, which services of a check share with it; 0 for another
        kind of file.
        """
        for process in self._proc.glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if (process / "ns" / "net").stat().st_ino == namespace:
                    for thread in choose_one_of_each_table(sorted((process / "task").iterdir())):
                        yield from _stat_sockets(thread / "fd")


def _stat_sockets(table: Path) -> Iterator[int]:
    with suppress(OSError), os.scandir(table) as names:
        for entry in names:
            with suppress(OSError):
                info = entry.stat()
                yield info.st_ino if stat.S_ISSOCK(info.st_mode) else 0


def _list_sockets(thread: Path) -> set[int]:
    """The inode numbers of the sockets of a namespace; a connection that was not accepted has none (0)."""
    found: set[int] = set()
    with suppress(OSError), (thread / "net" / "unix").open("rb") as lines:
        for line in lines.read(_MAX_LIST_BYTES).splitlines()[1:]:
            columns = line.split(None, _INODE_COLUMN + 1)
            if len(columns) > _INODE_COLUMN and columns[_INODE_COLUMN].isdigit():
                found.add(int(columns[_INODE_COLUMN]))
    return found - {0}
