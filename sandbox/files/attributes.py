"""Bytes of extended attributes, which a guest may give its files: on ext4 and XFS a file's blocks count them, on
others, such as btrfs, they do not (THREATS S162).

Each attribute counts with what btrfs stores beside its name and value. Names of one file have 64 KiB at most, since a
list of more cannot be read (`XATTR_LIST_MAX`): a file with more of them counts as larger than any limit.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sandbox.files.stamps import file_system_type

_IN_BLOCKS = frozenset({0xEF53, 0x58465342})  # statfs(2), f_type: ext2/3/4, xfs
_BESIDE = 55  # btrfs: an item and a name of a directory, 25 and 30 bytes
_UNREAD_BYTES = 16 * 1024  # of a value: btrfs has no larger one
_UNLISTED_BYTES = 1 << 40
_TOO_MANY = frozenset({errno.E2BIG, errno.ERANGE})
_UNSUPPORTED = frozenset({errno.ENOTSUP, errno.ENOSYS})


class AttributeCount:
    """Counts the attributes of files of one file system, where no block counts them."""

    def __init__(self, root: Path) -> None:
        self._is_off = file_system_type(root) in _IN_BLOCKS

    def measure(self, folder: int, name: str) -> int:
        """Bytes of the attributes of one name in an open folder. Opens no file and follows no link."""
        if self._is_off:
            return 0
        path = f"/proc/self/fd/{folder}/{name}"
        try:
            names = os.listxattr(path, follow_symlinks=False)
        except OSError as error:
            self._is_off = error.errno in _UNSUPPORTED
            return _UNLISTED_BYTES if error.errno in _TOO_MANY else 0
        return sum(_measure_one(path, each) for each in names)


def _measure_one(path: str, name: str) -> int:
    beside = len(os.fsencode(name)) + _BESIDE
    try:
        return beside + len(os.getxattr(path, name, follow_symlinks=False))
    except PermissionError:
        return beside + _UNREAD_BYTES
    except OSError:  # removed meanwhile
        return 0
