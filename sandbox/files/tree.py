"""Read, write and walk one worktree through one directory handle.

Rules (THREATS H): paths are resolved by `openat2` only. A file is opened as a path handle, examined, and reopened as
exactly that inode only if it is a regular file. Content and hash come from one descriptor and one pass. Writes go to an
exclusive temporary name in the resolved parent and are renamed into place. A file with several hard links that does not
belong to the tree's owner comes from outside the tree: it is not read, replaced or listed as a file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.files.checkout import remove_directory
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits, kind_of
from sandbox.files.openat2 import openat2
from sandbox.files.stamps import KnownFiles
from sandbox.policy.paths import (
    LISTED_PATH_HINT,
    RESERVED_PREFIX,
    RepoPath,
    link_error,
    path_bytes,
    refused_path_error,
    show_path,
)

READ_CAP = 10 * 1024**2
"""Default limit for a file that is read into memory."""

STREAM_CAP = 512 * 1024**2
"""Default limit for a file that is read in chunks: about a second."""

_CHUNK = 1 << 20
_name = attrgetter("name")
_LINK_HINT = "Have the guest copy the file instead."

NO_SUCH_FILE = "no_such_file"
"""`reason` of `not_found`: the path leads to no file. Other reasons of this code are about the whole worktree."""

UNREADABLE_REASONS = frozenset({"regular", "link", "length", "mode"})
"""`reason` of `unsafe_path`: the path leads to an entry that is never read, so the caller needs another path."""


class WorktreeFiles:
    """Safe access to the files below one root. Use it as a context manager: it opens the root's handle once."""

    def __init__(self, root: Path, time_ns: int | None = None, umask: int = 0o022) -> None:
        """`time_ns`: modification time of the files that are written, instead of now. `umask`: permissions that they,
        and new directories, do not get.
        """
        self._root = root
        self._time_ns = time_ns
        self._umask = umask
        self._fd = -1
        self._owner = -1

    def __enter__(self) -> WorktreeFiles:
        try:
            self._fd = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                "The task's worktree is missing",
                details=f"{self._root.name}: {error.strerror}",
                hint="Its commits and snapshots still exist: `sandbox task fork --snapshot` continues from one.",
            ) from error
        self._owner = os.fstat(self._fd).st_uid
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._fd = -1

    def read(self, path: RepoPath, cap: int = READ_CAP) -> bytes:
        """Whole content of a regular file. Raises: `not_found`, `unsafe_path`, `quota_exceeded` past `cap` bytes."""
        return self.read_with_mode(path, cap)[0]

    def read_with_mode(self, path: RepoPath, cap: int = READ_CAP) -> tuple[bytes, bool]:
        """Content and whether the owner may execute it."""
        content, info = self.read_with_stat(path, cap)
        return content, bool(info.st_mode & stat.S_IXUSR)

    def read_with_stat(self, path: RepoPath, cap: int) -> tuple[bytes, os.stat_result]:
        """Content, and the stat of the same inode before it was read."""
        with _translate_errors(path), self._open_regular(path_bytes(path)) as (fd, info):
            return b"".join(_read_chunks(fd, cap, path)), info

    @contextmanager
    def open_chunks(
        self, path: RepoPath, cap: int = STREAM_CAP
    ) -> Iterator[tuple[os.stat_result, Generator[bytes, None, None]]]:
        """The stat of a regular file, and the content of the same inode in chunks. It may change while it is read.

        Raises: as `read`.
        """
        with _translate_errors(path), self._open_regular(path_bytes(path)) as (fd, info):
            yield info, _read_chunks(fd, cap, path)

    def stream(self, path: RepoPath, cap: int = STREAM_CAP) -> Generator[bytes, None, None]:
        """A regular file in chunks, all from one descriptor. Close the generator if you do not read it to the end.
        Raises: as `read`, at the first chunk, or later if the file grows past `cap`.
        """
        with _translate_errors(path), self._open_regular(path_bytes(path)) as (fd, _):
            yield from _read_chunks(fd, cap, path)

    def read_link(self, path: bytes) -> bytes:
        """Target text of a symlink. The link is not followed."""
        return self.read_link_with_stat(path)[0]

    def read_link_with_stat(self, path: bytes) -> tuple[bytes, os.stat_result]:
        """Target text of a symlink, and the stat of the same inode."""
        with _translate_errors(show_path(path)):
            handle = openat2(self._fd, path, os.O_PATH | os.O_NOFOLLOW)
            try:
                return os.fsencode(os.readlink(b"", dir_fd=handle)), os.fstat(handle)
            finally:
                os.close(handle)

    @contextmanager
    def open_regular(self, path: bytes) -> Iterator[tuple[int, os.stat_result]]:
        """A descriptor of a regular file, for reading, and its stat. Raises: as `read`."""
        with _translate_errors(show_path(path)), self._open_regular(path) as found:
            yield found

    @contextmanager
    def open_directory(self, path: bytes, owner: tuple[int, int] | None) -> Iterator[int]:
        """A descriptor of a directory, '' for the root; it and those above it are created. Raises: `unsafe_path`."""
        with _translate_errors(show_path(path)), self._open_directory(path, create=True, owner=owner) as folder:
            yield folder

    def require_directory(self, path: RepoPath) -> None:
        """Raises: `not_found`, `unsafe_path` unless this is a directory on a path without links."""
        with _translate_errors(path), self._open_directory(path_bytes(path), create=False, owner=None):
            pass

    def exists(self, path: RepoPath) -> bool:
        """Whether an entry of any kind has this name."""
        try:
            os.close(openat2(self._fd, path_bytes(path), os.O_PATH | os.O_NOFOLLOW))
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return False
            raise _access_error(path, error) from error
        return True

    def kind(self, path: RepoPath) -> EntryKind | None:
        """Kind of the entry (links not followed); None if absent. Raises: `unsafe_path` for a link in the path."""
        raw = path_bytes(path)
        try:
            handle = openat2(self._fd, raw, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return None
            raise _access_error(path, error) from error
        try:
            return kind_of(os.path.basename(raw), os.fstat(handle).st_mode)
        finally:
            os.close(handle)

    def write(
        self,
        path: RepoPath,
        content: bytes | Iterable[bytes],
        *,
        executable: bool,
        owner: tuple[int, int] | None,
        replace_link: bool = False,
    ) -> None:
        """Create or replace a regular file, durably. Missing directories are created. `content`: whole or in chunks.

        A link at the end of the path is refused, or with `replace_link` replaced; it is never followed. A link on
        the way is refused (`unsafe_path`). A hard link is replaced, never written through. A hard link of another
        owner's file is refused.
        """
        mode = (0o777 if executable else 0o666) & ~self._umask
        chunks = [content] if isinstance(content, bytes) else content
        self._publish(
            path, lambda folder, name: _create_file(folder, name, chunks, mode, owner), owner, links=replace_link
        )

    def write_link(self, path: RepoPath, target: bytes, *, owner: tuple[int, int] | None) -> None:
        """Create a symlink, or replace a regular file or link by one. Missing directories are created.

        The caller decides which targets are allowed; this module never follows them.
        """
        self._publish(path, lambda folder, name: _create_link(folder, name, target, owner), owner, links=True)

    def _publish(
        self, path: RepoPath, make: Callable[[int, bytes], None], owner: tuple[int, int] | None, *, links: bool
    ) -> None:
        parent, name = os.path.split(path_bytes(path))
        with (
            _translate_errors(path, creates=True),
            self._open_directory(parent, create=True, owner=owner) as folder,
        ):
            info = _stat_regular_or_absent(folder, name, path, links=links)
            if info is not None:
                self._require_own_file(info, path)
            temporary = RESERVED_PREFIX + secrets.token_hex(8).encode()
            try:
                make(folder, temporary)
                if self._time_ns is not None:
                    times = (self._time_ns, self._time_ns)
                    os.utime(temporary, ns=times, dir_fd=folder, follow_symlinks=False)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def remove(self, path: RepoPath, *, link: bool = False) -> None:
        """Delete a regular file, or with `link` the link itself, and then its parent directories that are empty."""
        raw = path_bytes(path)
        parent, name = os.path.split(raw)
        with _translate_errors(path):
            with self._open_directory(parent, create=False, owner=None) as folder:
                _stat_regular_or_absent(folder, name, path, links=link)
                os.unlink(name, dir_fd=folder)
                os.fsync(folder)
            self._remove_empty(parent)

    def remove_directory(self, path: RepoPath) -> None:
        """Delete a directory and all that is in it, then its parent directories that are empty. No link is followed."""
        parent, name = os.path.split(path_bytes(path))
        with _translate_errors(path):
            with self._open_directory(parent, create=False, owner=None) as folder:
                remove_directory(name, folder)  # by directory handles; a link in the place of `name` is refused
                os.fsync(folder)
            self._remove_empty(parent)

    def list_directory(self, path: bytes, limits: WalkLimits | None = None) -> list[WalkEntry]:
        """The names in a directory, sorted, '' for the root; rejected ones as in `walk`.

        Raises: `not_found`, `unsafe_path`; `quota_exceeded` past the limits.
        """
        limits = limits or WalkLimits()
        if path.count(b"/") >= limits.depth:
            raise limits.too_deep_error()
        with _translate_errors(show_path(path)), self._open_directory(path, create=False, owner=None):
            pass  # `_list_directory` reports what cannot be opened as rejected
        count, listed = self._list_directory(path, limits.entries, None)
        limits.require(count, sum(len(entry.path) for entry in listed))
        return listed

    def remove_temporary(self, path: bytes) -> bool:
        """Delete a temporary file that a killed `write` left, also if the guest made it. Returns whether it existed.

        Raises: `unsafe_path` for any other name.
        """
        parent, name = os.path.split(path)
        if not name.startswith(RESERVED_PREFIX):
            raise refused_path_error(show_path(path), "name", "it is not one of our temporary names", "")
        with _translate_errors(show_path(path)), self._open_directory(parent, create=False, owner=None) as folder:
            try:
                os.unlink(name, dir_fd=folder)
            except (FileNotFoundError, IsADirectoryError):
                return False
            return True

    def walk(
        self,
        skip: Callable[[bytes], bool],
        limits: WalkLimits | None = None,
        known: KnownFiles | None = None,
        *,
        start: bytes = b"",
    ) -> Iterator[WalkEntry]:
        """Every name below the root or the directory `start`, depth first, sorted. `skip(path)` prunes a directory.
        `known` files are left out.

        Names that git or a file system treats as `.git`, special files and unreadable directories are returned as
        rejected. Raises: `quota_exceeded` past the limits; names of known files count as entries only.
        """
        limits = limits or WalkLimits()
        seen, name_bytes = 0, 0
        pending = [start]
        while pending:
            folder = pending.pop()
            if folder.count(b"/") >= limits.depth:
                raise limits.too_deep_error()
            count, listed = self._list_directory(folder, limits.entries - seen, known)
            seen += count
            name_bytes += sum(len(entry.path) for entry in listed)
            limits.require(seen, name_bytes)
            for entry in listed:
                if entry.kind is not EntryKind.DIRECTORY:
                    yield entry
                elif not skip(entry.path):
                    pending.append(entry.path)

    def _list_directory(self, folder: bytes, most: int, known: KnownFiles | None) -> tuple[int, list[WalkEntry]]:
        """Number of names in a directory (counted up to `most` + 1, which is enough to refuse), and sorted entries."""
        try:
            fd = openat2(self._fd, folder or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # removed, replaced by a link, or made unreadable since it was listed
            return 1, [WalkEntry(folder, EntryKind.REJECTED, executable=False, size=0)]
        try:
            with os.scandir(fd) as found:
                listed: Sequence[os.DirEntry[str]] = sorted(islice(found, most + 1), key=_name)
            unknown = known.select_unknown(folder, listed) if known and len(listed) <= most else listed
            names = sorted(os.fsencode(entry.name) for entry in unknown)
            return len(listed), [e for e in (self._entry(fd, folder, name) for name in names) if e is not None]
        finally:
            os.close(fd)

    def _entry(self, folder_fd: int, folder: bytes, name: bytes) -> WalkEntry | None:
        path = folder + b"/" + name if folder else name
        try:
            info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except OSError:
            return None  # removed meanwhile
        kind = EntryKind.REJECTED if self._is_foreign(info) else kind_of(name, info.st_mode)
        times_ns = (info.st_mtime_ns, info.st_ctime_ns)
        return WalkEntry(path, kind, bool(info.st_mode & stat.S_IXUSR), info.st_size, times_ns)

    def _is_foreign(self, info: os.stat_result) -> bool:
        """Whether this is a hard link of a file from outside the tree. On a host without protected_hardlinks (sysctl) a
        guest can link any file of its mount. The tree's own files may have several names.
        """
        return stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and info.st_uid != self._owner

    def _require_own_file(self, info: os.stat_result, path: str) -> None:
        if self._is_foreign(info):
            raise refused_path_error(
                path, "hard-link", "it is a hard link of a file that is not the task's", _LINK_HINT
            )

    @contextmanager
    def _open_regular(self, path: bytes) -> Iterator[tuple[int, os.stat_result]]:
        handle = openat2(self._fd, path, os.O_PATH | os.O_NOFOLLOW)
        try:
            info = os.fstat(handle)
            if stat.S_ISLNK(info.st_mode):
                raise link_error(show_path(path), os.fsencode(os.readlink(b"", dir_fd=handle)))
            if not stat.S_ISREG(info.st_mode):
                raise _not_regular_error(show_path(path))
            self._require_own_file(info, show_path(path))
            fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)
        try:
            yield fd, info
        finally:
            os.close(fd)

    @contextmanager
    def _open_directory(self, path: bytes, *, create: bool, owner: tuple[int, int] | None) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY  # no O_NOFOLLOW: with it a link gives ENOTDIR, which means absent here
        if create and path:
            self._make_directories(path, owner)
        fd = openat2(self._fd, path or b".", flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _make_directories(self, path: bytes, owner: tuple[int, int] | None) -> None:
        done = b""
        for name in path.split(b"/"):
            parent = openat2(self._fd, done or b".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=parent)
                    _set_directory_mode(parent, name, 0o777 & ~self._umask)
                    if owner is not None:
                        os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
            done = done + b"/" + name if done else name

    def _remove_empty(self, folder: bytes) -> None:
        while folder:
            above, name = os.path.split(folder)
            try:
                with self._open_directory(above, create=False, owner=None) as fd:
                    os.rmdir(name, dir_fd=fd)
            except OSError:
                return
            folder = above


def _set_directory_mode(parent: int, name: bytes, mode: int) -> None:
    """Whatever the umask of the process. Through a handle: a guest may have put a link there since."""
    fd = openat2(parent, name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def sha256_of(content: bytes) -> str:
    """`sha256:<hex>` of a whole file."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def sha256_of_chunks(chunks: Iterable[bytes]) -> str:
    """As `sha256_of`, for a file that is read in chunks."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def _read_chunks(fd: int, cap: int, path: str) -> Generator[bytes, None, None]:
    if os.fstat(fd).st_size > cap:  # a guest can create a huge sparse file for free
        raise _too_large_error(path, cap)
    total = 0
    while chunk := os.read(fd, _CHUNK):
        total += len(chunk)
        if total > cap:
            raise _too_large_error(path, cap)
        yield chunk


def _too_large_error(path: str, cap: int) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"{path} is larger than the limit of {cap} bytes",
        hint="`sandbox file search` searches files of up to 10 MiB. A check can read files of any size.",
    )


def _create_file(folder: int, name: bytes, chunks: Iterable[bytes], mode: int, owner: tuple[int, int] | None) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb", closefd=False) as stream:
            stream.writelines(chunks)
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
        os.fsync(fd)
    finally:
        os.close(fd)


def _create_link(folder: int, name: bytes, target: bytes, owner: tuple[int, int] | None) -> None:
    os.symlink(target, name, dir_fd=folder)
    if owner is not None:
        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)


def _stat_regular_or_absent(folder: int, name: bytes, path: str, *, links: bool) -> os.stat_result | None:
    """Stat of a regular file, or with `links` of a link; None if the name does not exist."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode) and not (links and stat.S_ISLNK(info.st_mode)):
        raise _not_regular_error(path)
    return info


def _not_regular_error(path: str) -> SandboxError:
    return refused_path_error(path, "regular", "not a regular file")


@contextmanager
def _translate_errors(path: str, *, creates: bool = False) -> Iterator[None]:
    """`creates`: directories above are created, so what is in the way is a file."""
    try:
        yield
    except OSError as error:
        if creates and error.errno == errno.ENOTDIR:
            brief = f"{path} cannot be written: what is above it is a file, not a directory"
            raise SandboxError(ErrorCode.INVALID_INPUT, brief, hint=LISTED_PATH_HINT) from error
        raise _access_error(path, error) from error


def _access_error(path: str, error: OSError) -> SandboxError:
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no file {path}",
            hint=LISTED_PATH_HINT,
            reason=NO_SUCH_FILE,
        )
    if error.errno == errno.ENAMETOOLONG:  # each name fits but not the whole path: the guest nested it step by step
        return refused_path_error(path, "length", "it is longer than the kernel allows")
    if error.errno in {errno.ELOOP, errno.EXDEV, errno.ENXIO, errno.EISDIR}:
        return refused_path_error(path, "link", "it leads through a link or to another file system")
    if error.errno == errno.EAGAIN:
        return SandboxError(ErrorCode.CONFLICT, f"{path} has a lease, or changed repeatedly", hint="Try again.")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return refused_path_error(path, "mode", "it cannot be accessed")
    defect = SandboxError(ErrorCode.INTERNAL, f"Cannot access {path}", details=error.strerror or str(error))
    return translate_shortage(error) or defect
