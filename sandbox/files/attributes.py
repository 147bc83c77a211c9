"""Bytes of extended attributes, which a guest may give its files: on ext4 and XFS a file's blocks count them, on
others, such as btrfs, they do not (THREATS S162).

Each attribute counts with what btrfs stores beside its name and value. Names of one file have 64 KiB at most, since a
list of more cannot be read (`XATTR_LIST_MAX`): a file with more of them counts as larger than any limit.

That is up to 7,000 names, and 100 MB of values. So values are not read, only their sizes; a few attributes are counted
at a time; and a file with several names is measured once.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from sandbox.files.stamps import file_system_type

_IN_BLOCKS = frozenset({0xEF53, 0x58465342})  # statfs(2), f_type: ext2/3/4, xfs
_BESIDE = 55  # btrfs: an item and a name of a directory, 25 and 30 bytes
_UNREAD_BYTES = 16 * 1024  # of a value: btrfs has no larger one
_UNLISTED_BYTES = 1 << 40
_AT_ONCE = 16
_TOO_MANY = frozenset({errno.E2BIG, errno.ERANGE})
_UNSUPPORTED = frozenset({errno.ENOTSUP, errno.ENOSYS})
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM})

_libc = ctypes.CDLL(None, use_errno=True)
_libc.lgetxattr.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_libc.lgetxattr.restype = ctypes.c_ssize_t


class AttributeCount:
    """Counts the attributes of files of one file system, where no block counts them."""

    def __init__(self, root: Path) -> None:
        self._is_off = file_system_type(root) in _IN_BLOCKS
        self._measured = set[tuple[int, int]]()  # of files with several names

    def measure(self, folder: int, name: str, info: os.stat_result) -> Iterable[int]:
        """Bytes of the attributes of one name in an open folder, some attributes at a time; of a file with several
        names once. Opens no file and follows no link.
        """
        if self._is_off:
            return ()
        file = info.st_dev, info.st_ino
        if file in self._measured:
            return ()
        path = f"/proc/self/fd/{folder}/{name}"
        try:
            names = os.listxattr(path, follow_symlinks=False)
        except OSError as error:
            self._is_off = error.errno in _UNSUPPORTED
            return (_UNLISTED_BYTES,) if error.errno in _TOO_MANY else ()
        if names and info.st_nlink > 1:
            self._measured.add(file)
        return _measure_each(path, names) if names else ()


def _measure_each(path: str, names: Sequence[str]) -> Iterator[int]:
    rest = iter(names)
    while some := list(islice(rest, _AT_ONCE)):
        yield sum(_measure_one(path, os.fsencode(each)) for each in some)


def _measure_one(path: str, name: bytes) -> int:
    beside = len(name) + _BESIDE
    size: int = _libc.lgetxattr(os.fsencode(path), name, None, 0)  # without a buffer: only the size, xattr(7)
    if size >= 0:
        return beside + size
    return beside + _UNREAD_BYTES if ctypes.get_errno() in _UNREADABLE else 0  # else removed meanwhile
