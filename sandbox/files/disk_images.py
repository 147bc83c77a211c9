"""Disks: file systems of a fixed size, each in one sparse image file (docs/adr/0049).

A new disk is a sparse copy of a template that `mke2fs` makes once per size; no process is started for it. It has no
journal, which would double each write: after a power failure `e2fsck` runs before the next mount, when the superblock
says that the disk was in use. fsync(2) in a disk reaches the image and the host's disk below.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import struct
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from sandbox.files.loop_devices import attach_image
from sandbox.files.overlay_mounts import PROBE_PREFIX, unmount_overlay
from sandbox.lazy_dataclass import dataclass
from sandbox.private_folders import make_private

_MS_NOSUID, _MS_NODEV = 0x2, 0x4
_OPTIONS = b"noinit_itable,errors=remount-ro"  # inode tables stay holes; deleted files are trimmed by `trim_disk`
_FITRIM = 0xC0185879
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_FEATURES = "^has_journal,^resize_inode,^metadata_csum,uninit_bg,extent,flex_bg,dir_index"
_INODE_BYTES, _BLOCK_BYTES = 256, 4096
_MIN_BYTES = 2 * 1024**2
_UNCOUNTED_FILES = 64  # the file system's own, and ours beside the guest's
_STATE_AT, _CLEAN = 1024 + 0x3A, 1  # s_state of the superblock: Documentation/filesystems/ext4/super.rst
_E2FSCK_FAILED = 4  # e2fsck(8): lower codes mean that all errors were corrected
_PROGRAM_TIMEOUT_S = 600.0

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class DiskSize:
    """How many bytes and files a disk holds."""

    bytes: int
    files: int


def ensure_template(folder: Path, size: DiskSize) -> Path:
    """The template for disks of this size, made if it is missing. Raises: OSError."""
    path = folder / f"{size.bytes}-{size.files}.img"
    if not path.is_file():
        make_private(folder)
        beside = folder / f".{path.name}.{secrets.token_hex(4)}"
        try:
            _make_file_system(beside, size)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    return path


def _make_file_system(path: Path, size: DiskSize) -> None:
    inodes = size.files + _UNCOUNTED_FILES
    total = size.bytes + inodes * _INODE_BYTES + size.bytes // 256 + _MIN_BYTES  # with its bitmaps and tables
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as image:
        image.truncate(total + -total % _BLOCK_BYTES)
    layout = ("-b", str(_BLOCK_BYTES), "-I", str(_INODE_BYTES), "-N", str(inodes), "-m", "0")
    _run("mke2fs", "-q", "-F", "-t", "ext4", *layout, "-O", _FEATURES, "-E", "lazy_itable_init=1,nodiscard", str(path))


def _run(*argv: str) -> int:
    """The exit code of a program of e2fsprogs. Raises: OSError when it is missing, fails to make a file system, or
    takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            argv, env={"PATH": _PATH}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROGRAM_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, f"{argv[0]} did not end") from error
    if done.returncode and argv[0] == "mke2fs":
        raise OSError(errno.EIO, f"mke2fs failed: {done.stderr.decode(errors='replace')[:300]}")
    return done.returncode


def create_disk(image: Path, template: Path) -> None:
    """Create the image of a new, empty disk: a copy of the template with its holes. A kill leaves all of it or none
    under its name. Raises: OSError.
    """
    beside = image.with_name(f".{image.name}.{secrets.token_hex(4)}")
    try:
        with template.open("rb") as source:
            target = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                copy_with_holes(source.fileno(), target)
                os.fsync(target)
            finally:
                os.close(target)
        beside.replace(image)
    except BaseException:
        with suppress(OSError):
            beside.unlink()  # it takes space where there was too little
        raise


def copy_with_holes(source: int, target: int) -> None:
    """Copy a file to an empty one, without allocating blocks for its holes. Raises: OSError."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        while start < end:
            part = os.pread(source, min(end - start, 1024**2), start)
            if not part:
                return  # it was cut meanwhile
            start += os.pwrite(target, part, start)


def mount_disk(image: Path, place: Path, *, is_new: bool = False) -> None:
    """Mount a disk at an existing directory; also a second time, at another one. `is_new`: it was just created.

    Raises: OSError.
    """
    with attach_image(image, None if is_new else _repair) as device:
        flags = ctypes.c_ulong(_MS_NODEV | _MS_NOSUID)
        if _libc.mount(os.fsencode(device), os.fsencode(place), b"ext4", flags, _OPTIONS) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _repair(image: Path) -> None:
    """Check a disk that was in use when the host stopped. Raises: OSError when it cannot be repaired."""
    with image.open("rb") as content:
        state = os.pread(content.fileno(), 2, _STATE_AT)
    if len(state) == 2 and struct.unpack("<H", state)[0] & _CLEAN:
        return
    if _run("e2fsck", "-p", str(image)) >= _E2FSCK_FAILED and _run("e2fsck", "-y", str(image)) >= _E2FSCK_FAILED:
        raise OSError(errno.EUCLEAN, f"{image.name} is damaged and e2fsck could not repair it")


def trim_disk(place: Path) -> None:
    """Give the space of deleted files back to the host. Where the host cannot take it, the call has no effect."""
    with suppress(OSError):
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(folder, _FITRIM, struct.pack("=3Q", 0, 2**64 - 1, 0))
        finally:
            os.close(folder)


def find_disk_obstacle(folder: Path) -> str:
    """Why disks do not work below `folder`; empty if they work."""
    if os.geteuid() != 0:
        return "the controller is not root"
    if shutil.which("mke2fs", path=_PATH) is None:
        return "mke2fs is missing (package e2fsprogs)"
    try:
        with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=folder) as name:
            place = Path(name) / "merged"  # the name that `gc` unmounts
            place.mkdir()
            create_disk(Path(name) / "disk.img", ensure_template(Path(name), DiskSize(_MIN_BYTES, 64)))
            mount_disk(Path(name) / "disk.img", place, is_new=True)
            unmount_overlay(place)
    except OSError as error:
        return error.strerror or str(error)
    return ""
