"""Read a directory that may be hostile: one component at a time, no links, plain files only, never waiting.

A file is opened as a path handle, examined, and reopened as exactly that inode: opening a FIFO for reading waits.
Errors name the file and never repeat its content.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import scrub

MAX_ENTRIES = 300_000
"""Of one directory. Reached: `unsafe_repository`."""

_HINT = "A repository from elsewhere can lead git to other files. Use the repository's network URL, or a fresh clone."


class Folder:
    """An open directory. `name`: how errors call it."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name

    @contextmanager
    def subfolder(self, name: str) -> Iterator[Folder | None]:
        """A directory in this one; None if there is none. Raises: `unsafe_repository` for anything else."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise self._unreadable_error(name, error) from error
        try:
            yield Folder(fd, f"{self.name}/{name}")
        finally:
            os.close(fd)

    def read(self, name: str, cap: int) -> bytes | None:
        """Content of a plain file; None if there is none. Raises: `unsafe_repository`, also past `cap` bytes."""
        with self._open(name, cap) as stream:
            return None if stream is None else stream.read(cap)

    def read_lines(self, name: str, cap: int, line_cap: int) -> Iterator[bytes]:
        """The lines of a plain file, one in memory, without their ends; none if there is no file. `line_cap`: bytes.
        Raises: as `read`, also for a longer line.
        """
        left = cap
        with self._open(name, cap) as stream:
            while stream is not None and (line := stream.readline(line_cap + 1)):
                left -= len(line)
                if left < 0 or len(line) > line_cap:
                    raise self.unsafe_error(name, f"larger than {cap} bytes, or a line larger than {line_cap} bytes")
                yield line.removesuffix(b"\n")

    @contextmanager
    def _open(self, name: str, cap: int) -> Iterator[BinaryIO | None]:
        try:
            handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise self._unreadable_error(name, error) from error
        try:
            info = os.fstat(handle)
            # On a host without protected_hardlinks (sysctl) another user can link our files into a directory of theirs.
            if not stat.S_ISREG(info.st_mode) or (info.st_nlink > 1 and info.st_uid != os.geteuid()):
                raise self.unsafe_error(name)
            if info.st_size > cap:
                raise self.unsafe_error(name, f"larger than {cap} bytes")
            with open(f"/proc/self/fd/{handle}", "rb") as stream:  # noqa: PTH123 - exactly this inode
                yield stream
        except OSError as error:
            raise self._unreadable_error(name, error) from error
        finally:
            os.close(handle)

    def has(self, name: str) -> bool:
        """Whether there is an entry of any kind with this name."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def list_directories(self) -> list[str]:
        """Names of the directories in this one, sorted. Links and other entries are left out."""
        return sorted(entry.name for entry in self._scan() if entry.is_dir(follow_symlinks=False))

    def list_files(self) -> list[str]:
        """Names of all entries but directories, sorted. Raises: `unsafe_repository` unless they are plain files."""
        entries = (entry for entry in self._scan() if not entry.is_dir(follow_symlinks=False))
        names = [(entry.name, entry.is_file(follow_symlinks=False)) for entry in entries]
        for name, is_plain in names:
            if not is_plain:
                raise self.unsafe_error(name)
        return sorted(name for name, _ in names)

    def _scan(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self.fd) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    raise self.unsafe_error("", f"more than {MAX_ENTRIES} entries")
                yield entry

    def unsafe_error(self, name: str, reason: str = "not a plain file of its owner") -> SandboxError:
        """`unsafe_repository` for an entry of this directory."""
        return SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "The local repository contains something that git must not read",
            details=scrub(f"{self.name}/{name}: {reason}".encode(errors="replace").decode()),
            hint=_HINT,
        )

    def _unreadable_error(self, name: str, error: OSError) -> SandboxError:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            return self.unsafe_error(name, "a link or a special file")
        return self.unsafe_error(name, error.strerror or "unreadable")


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """Raises: `unsafe_repository` unless `path` is a directory, not a link."""
    parent = Folder(-1, str(path.parent))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise parent.unsafe_error(path.name, "not a directory that we can read") from error
    try:
        yield Folder(fd, str(path))
    finally:
        with suppress(OSError):
            os.close(fd)
