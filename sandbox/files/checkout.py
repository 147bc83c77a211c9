"""Write a tree to disk with our own writer, and delete trees.

git's checkout applies filters, end-of-line rules and hooks; here the bytes on disk are the bytes of the blobs
(THREATS E16, I03). The target is a new directory that no guest has seen.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import RESERVED_PREFIX, is_dotgit
from sandbox.private_folders import make_private

FILE_TIME_NS = 1_000_000_000 * 10**9
"""Modification time of each file of a checkout, in ns: 2001-09-09T01:46:40Z.

One time for all: with the order of our writing, make would rebuild generated files that the repository holds (a
`configure` older than its `configure.ac`) in one checkout and not in the next. It is older than what a build writes,
and archive formats that begin in 1980 can hold it.
"""

FileSpec = tuple[bytes, str, bytes | Iterable[bytes]]
"""(path, git mode, content, whole or in chunks); for mode 120000 the content is the link's target."""

_TARGET_BYTES = 4096  # PATH_MAX
_IMPOSSIBLE = {errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL}
"""Errors that occur in a new directory of ours only if the tree itself cannot exist on disk."""


def check_out(root: Path, files: Iterable[FileSpec], owner: tuple[int, int] | None) -> int:
    """Write `files` below the new directory `root`. Returns their number.

    Raises: `unsafe_repository` for names that must not exist; `root` is then deleted.
    """
    make_private(root.parent)
    root.mkdir(mode=0o700)
    try:
        count = _write_all(os.fsencode(root), files, owner)
        if owner is not None:
            os.chown(root, *owner)
        root.chmod(0o755)
    except BaseException:
        remove_tree(root)
        raise
    return count


def _write_all(base: bytes, files: Iterable[FileSpec], owner: tuple[int, int] | None) -> int:
    made: set[bytes] = {b""}
    count = 0
    for path, mode, content in files:
        _require_safe_components(path)
        try:
            _make_parents(base, os.path.dirname(path), made, owner)
            _write_one(base + b"/" + path, mode, content, owner)
        except (OSError, ValueError) as error:  # ValueError: a NUL in a link
            if isinstance(error, OSError) and error.errno not in _IMPOSSIBLE:
                raise
            raise _checkout_error(path) from error
        count += 1
    return count


def _write_one(target: bytes, mode: str, content: bytes | Iterable[bytes], owner: tuple[int, int] | None) -> None:
    chunks = [content] if isinstance(content, bytes) else content
    if mode == "120000":
        os.symlink(_join_target(chunks), target)
        if owner is not None:
            os.chown(target, *owner, follow_symlinks=False)
        os.utime(target, ns=(FILE_TIME_NS, FILE_TIME_NS), follow_symlinks=False)
    else:
        _write_file(target, chunks, 0o755 if mode == "100755" else 0o644, owner)


def _join_target(chunks: Iterable[bytes]) -> bytes:
    """The target of a link. Raises: OSError for one that no file system accepts."""
    target = b""
    for chunk in chunks:
        target += chunk
        if len(target) > _TARGET_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return target


def _require_safe_components(path: bytes) -> None:
    """Our temporary names are refused too: no walk lists them, so such a file would seem deleted at once."""
    for name in path.split(b"/"):
        if name in {b"", b".", b".."} or is_dotgit(name) or name.startswith(RESERVED_PREFIX):
            raise _checkout_error(path)


def _checkout_error(path: bytes) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY, "The tree contains a name that must not be checked out", details=ascii(path)[:500]
    )


def _make_parents(base: bytes, folder: bytes, made: set[bytes], owner: tuple[int, int] | None) -> None:
    if folder in made:
        return
    _make_parents(base, os.path.dirname(folder), made, owner)
    target = base + b"/" + folder
    # A plain mkdir: it fails if a link of the same name was checked out before, and does not follow it.
    os.mkdir(target, 0o755)
    os.chmod(target, 0o755)  # noqa: S103 - whatever the umask: a guest, another user, must be able to read it
    if owner is not None:
        os.chown(target, *owner, follow_symlinks=False)
    made.add(folder)


def _write_file(target: bytes, chunks: Iterable[bytes], mode: int, owner: tuple[int, int] | None) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
        os.utime(fd, ns=(FILE_TIME_NS, FILE_TIME_NS))
    finally:
        os.close(fd)


def remove_tree(root: Path) -> None:
    """Delete a directory with anything a guest left in it: other owners, modes 000, deep nesting. Follows no link.

    Raises: `internal` if something could not be deleted; the hint says what to do.
    """
    try:
        remove_directory(os.fsencode(root), None)
    except OSError as error:
        if os.path.lexists(root):
            raise _removal_error(root, error) from error


def _removal_error(root: Path, error: OSError) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        "A worktree could not be removed completely",
        details=f"{root}: {error.strerror}",
        hint="Remove it as root. If the controller is not root, files of the guest's uid may be left.",
    )


def empty_tree(root: Path) -> None:
    """Delete all contents of a directory, like `remove_tree`, but not the directory: a guest has it mounted.

    The caller must reset its mode and owner: the guest may have changed the mode. Raises: `internal`.
    """
    try:
        _remove_contents(os.fsencode(root), None)
    except OSError as error:
        raise _removal_error(root, error) from error


def remove_directory(name: bytes, above: int | None) -> None:
    """As `remove_tree`, for a name in the directory with the descriptor `above`. Raises: OSError."""
    _remove_contents(name, above)
    os.rmdir(name, dir_fd=above)


def _remove_contents(name: bytes, above: int | None) -> None:
    """Move each nested directory to the top before its parent is deleted: any depth works. (rmtree recurses.)"""
    top = _open_directory(name, above)
    try:
        pending = _unlink_files(top, top)
        while pending:
            moved = pending.pop()
            folder = _open_directory(moved, top)
            try:
                pending += _unlink_files(folder, top)
            finally:
                os.close(folder)
            os.rmdir(moved, dir_fd=top)
    finally:
        os.close(top)


def _open_directory(name: bytes, above: int | None) -> int:
    """Open a directory and make it accessible. All steps use a handle: a guest that outlived its controller may replace
    the name by a link, and chmod(2) would follow the link to any directory of the host.
    """
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        inode = f"/proc/self/fd/{handle}"
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(inode, 0o700)
        return os.open(inode, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _unlink_files(folder: int, top: int) -> list[bytes]:
    """Unlink the files of a directory and move its directories to `top` under new names."""
    moved = []
    with os.scandir(folder) as entries:
        found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if is_directory:
            os.close(_open_directory(name, folder))
            moved.append(b".sandbox-remove-" + secrets.token_hex(8).encode())
            os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=folder)
    return moved
