"""Loop devices: a block device with the content of a regular file. Source: loop(4); needs Linux 5.8 and root.

Theory. Two devices over one file are two caches that do not know each other, and two mounts through them destroy the
file system. So a file that already has a device gets no second one: `attach_image` searches for it first, under a lock
on the file; a device that cannot be asked may be it, unless sysfs names another file. Every device clears itself when
its last user is gone (`AUTOCLEAR`): no program has to detach it, not even after a kill.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOP_GET_STATUS64, _LOOP_CONFIGURE, _LOOP_CTL_GET_FREE = 0x4C05, 0x4C0A, 0x4C82
_AUTOCLEAR = 4
_INFO = struct.Struct("=5Q4I160x2Q")  # struct loop_info64; the third group: number, encryption twice, flags
_CONFIG_TAIL = 64
_BLOCK_BYTES = 4096
_CONTROL = Path("/dev/loop-control")
_SYSTEM = Path("/sys/block")
_COMPARED = 2  # components of a path
_ATTEMPTS = 64  # other programs may take the free device that the kernel named


@contextmanager
def attach_image(image: Path, before_new: Callable[[Path], None] | None) -> Iterator[Path]:
    """The device of an image file, a new one if it has none. Mount it inside the block: it is cleared when unused.

    `before_new`: called with the image before it gets a device, while no other process can attach it. None: the image
    was just created, so it has no device, and none is searched for.
    Raises: OSError, also where no loop device can be made.
    """
    backing = os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(backing, fcntl.LOCK_EX)
        found = None if before_new is None else _find_device(os.fstat(backing), image)
        if found is None and before_new is not None:
            before_new(image)
        device, path = found or _configure_new(backing)
        try:
            yield path
        finally:
            os.close(device)
    finally:
        fcntl.flock(backing, fcntl.LOCK_UN)  # closing is not enough: the device shares our open file, lock included
        os.close(backing)


def is_attached(image: Path) -> bool:
    """Whether a loop device uses this file, perhaps one that is unmounted but still in use. Raises: OSError."""
    found = _find_device(image.stat(), image)
    if found is not None:
        os.close(found[0])
    return found is not None


def _find_device(status: os.stat_result, image: Path) -> tuple[int, Path] | None:
    """An open descriptor of the device of this file, and its path. While it is open the device is not cleared.

    Raises: OSError if a device cannot be asked that may be the one.
    """
    for entry in _SYSTEM.iterdir():
        if entry.name.startswith("loop") and (entry / "loop").exists():
            path = Path("/dev") / entry.name
            try:
                device = _open_if_backed_by(status, path)
            except OSError as error:
                if error.errno != errno.ENXIO and _may_be_backed_by(image, entry / "loop/backing_file"):
                    raise
                continue  # it was cleared meanwhile, or is of another file
            if device is not None:
                return device, path
    return None


def _open_if_backed_by(status: os.stat_result, path: Path) -> int | None:
    """A descriptor of a device; None if another file is behind it. Raises: OSError; ENXIO: no file is behind it."""
    device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        answer = _INFO.unpack(fcntl.ioctl(device, _LOOP_GET_STATUS64, bytes(_INFO.size)))
    except OSError:
        os.close(device)
        raise
    if (answer[0], answer[1]) == (status.st_dev, status.st_ino):
        return device
    os.close(device)
    return None


def _may_be_backed_by(image: Path, backing_file: Path) -> bool:
    """sysfs has the path of the file, as it is called now; no file if the device was cleared. Raises: OSError.

    Through the mount of another container the path begins otherwise, and may be short. So only its end is compared: the
    name, which all disks share, and the folder, which has the id of the task.
    """
    try:
        path = backing_file.read_bytes()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENODEV}:
            return False
        raise
    named = path.rstrip(b"\n").removesuffix(b" (deleted)").strip(b"/").split(b"/")[-_COMPARED:]
    ours = os.fsencode(image.resolve()).split(b"/")
    return ours[-len(named) :] == named


def _configure_new(backing: int) -> tuple[int, Path]:
    for _ in range(_ATTEMPTS):
        path = _find_free()
        device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, _LOOP_CONFIGURE, _describe(backing))
        except OSError as error:
            os.close(device)
            if error.errno != errno.EBUSY:
                raise
        else:
            return device, path
    raise OSError(errno.EBUSY, "other programs take every free loop device")


def _describe(backing: int) -> bytes:
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, 0, 0)
    return struct.pack("=2I", backing, _BLOCK_BYTES) + info + bytes(_CONFIG_TAIL)


def _find_free() -> Path:
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)
    path = Path(f"/dev/loop{number}")
    if not path.exists():
        raise OSError(errno.ENOENT, f"{path} does not exist: /dev is no devtmpfs")
    return path
