"""Idmapped mounts: show a directory with its files owned by another user, without changing the directory.

One pristine checkout is shared by all worktrees above it, and each worktree belongs to a user of its own. An overlay
lets a guest change a lower file only if the guest owns it, so each overlay gets a view of the checkout in which one
owner is replaced by another. The kernel does the replacement; what is copied up belongs to the new owner. Source:
mount_setattr(2); needs Linux 5.12, and 5.19 for a view below an overlay, and the right to mount.

The kernel takes the replacement from a user namespace, and a namespace exists only with a process in it: a `cat`,
started by `unshare`. It has none of our descriptors, so it holds none of our locks, and ends by itself when we are
killed: its input is closed then. (clone(2) without an exec would be faster, but a copy of our locks would outlive us.)
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.lazy_dataclass import dataclass

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_IN_NEW_NAMESPACE = ("unshare", "--user", "--", "cat")  # util-linux and coreutils
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE = 1
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 0x1, 0x100000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class IdMapping:
    """Files of `stored`, a uid and a gid, are shown as files of `shown`. Those of other owners belong to no user."""

    stored: tuple[int, int]
    shown: tuple[int, int]


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


@contextmanager
def idmapped_view(source: Path, place: Path, ids: IdMapping) -> Iterator[None]:
    """Mount a read-only view of `source` at `place`, a new directory, and remove both at the end.

    A mount that was made with the view keeps it. Raises: OSError where the kernel or the file system cannot do it.
    """
    remove_view(place)  # of a controller that was killed here
    place.mkdir(mode=0o700)
    try:
        _mount_view(source, place, ids)
        yield
    finally:
        remove_view(place)


def remove_view(place: Path) -> None:
    """Unmount a view, if there is one, and remove its directory. What still uses the view keeps it. Raises: OSError."""
    while _libc.umount2(os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    if (code := ctypes.get_errno()) not in {errno.EINVAL, errno.ENOENT}:  # EINVAL: it is no mount point
        raise OSError(code, os.strerror(code))
    with suppress(FileNotFoundError):
        place.rmdir()


def _mount_view(source: Path, place: Path, ids: IdMapping) -> None:
    namespace = _open_user_namespace(ids)
    try:
        attributes = _MountAttributes(set=_MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY, user_namespace=namespace)
        clone_flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = _require_success(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(source), clone_flags))
        try:
            size = ctypes.sizeof(attributes)
            changed = _libc.syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size)
            _require_success(changed)
            target = os.fsencode(place)
            _require_success(_libc.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH))
        finally:
            os.close(tree)
    finally:
        os.close(namespace)


def _open_user_namespace(ids: IdMapping) -> int:
    """Return a descriptor of a new user namespace that maps one user and one group."""
    with subprocess.Popen(  # noqa: S603 - constant
        _IN_NEW_NAMESPACE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": _PATH},
        bufsize=0,
    ) as process:
        try:
            _require_echo(process)
            for name, stored, shown in zip(("uid_map", "gid_map"), ids.stored, ids.shown, strict=True):
                Path(f"/proc/{process.pid}/{name}").write_text(f"{stored} {shown} 1", encoding="ascii")
            return os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            process.kill()


def _require_echo(process: subprocess.Popen[bytes]) -> None:
    """Wait until the program runs in its namespace. Raises: OSError if it cannot."""
    assert process.stdin is not None  # noqa: S101  # as requested
    assert process.stdout is not None  # noqa: S101
    with suppress(BrokenPipeError):
        process.stdin.write(b"x")
    if process.stdout.read(1) != b"x":
        raise OSError(errno.EPERM, "no user namespace can be made: `unshare --user` failed")


def _require_success(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
