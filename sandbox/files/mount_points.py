"""The mounts below a directory, from the kernel's table, and how to unmount them."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_ESCAPE = re.compile(rb"\\([0-7]{3})")


_libc = ctypes.CDLL(None, use_errno=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything at and below a directory. Processes that use a mount keep it until they end.

    Raises: `internal` if the controller may not unmount.
    """
    for point in list_mounts_below(folder):
        if _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            code = ctypes.get_errno()
            if code not in {errno.EINVAL, errno.ENOENT}:  # another process has just unmounted it
                raise SandboxError(
                    ErrorCode.INTERNAL,
                    f"{point.name} cannot be unmounted",
                    details=os.strerror(code),
                    hint="Run the controller as root, as it was when the mount was made.",
                )


def list_mounts_below(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Mount points at and below a directory, in the order in which to unmount them. Source: proc_pid_mountinfo(5)."""
    real = os.fsencode(folder.parent.resolve() / folder.name)  # the table has no links
    inside = real.rstrip(b"/") + b"/"  # bytes are compared: a host can have hundreds of mounts
    points = [_unescape(line.split(b" ", 5)[4]) for line in table.read_bytes().splitlines()]
    return [Path(os.fsdecode(point)) for point in reversed(points) if point == real or point.startswith(inside)]


def find_file_system_type(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds an existing directory, such as 'ext4'. Source: proc_pid_mountinfo(5)."""
    real = folder.resolve()
    kinds = {}
    for line in table.read_bytes().splitlines():  # of several mounts at one point the last counts
        mount, _, source = line.partition(b" - ")
        kinds[Path(os.fsdecode(_unescape(mount.split(b" ")[4])))] = source.split(b" ")[0].decode(errors="replace")
    return next((kinds[point] for point in (real, *real.parents) if point in kinds), "")


def _unescape(name: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), name) if b"\\" in name else name
