"""Overlay mounts: an immutable lower directory and an upper directory with one task's changes, shown as one tree.

The upper directory contains exactly what differs from the lower one, so finding changes costs what changed. The kernel
forbids writing an upper directory behind a live mount; reading it is safe at any time. Upper names hide lower names: a
whiteout (character device 0/0) is a deletion; a directory marked opaque hides the whole lower directory, and so does
any name that is not a directory. Guests cannot create these marks: the kernel refuses mknod of a whiteout in an
overlay, and the attributes are `trusted.`. Renames and metadata-only copies are switched off, so each upper file is
complete. Source: the kernel's Documentation/filesystems/overlayfs.rst; seen on 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from itertools import islice
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.idmap import IdMapping, idmapped_view
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits, kind_of
from sandbox.files.openat2 import openat2
from sandbox.lazy_dataclass import dataclass

_MS_NOSUID, _MS_NODEV = 0x2, 0x4
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_WHITEOUT = os.makedev(0, 0)
_OPAQUE = "trusted.overlay.opaque"
_OPTIONS = "redirect_dir=off,metacopy=off,index=off,xino=on"
"""`xino`: one device number for all files, and one inode number for all names of a file, also where the upper directory
is on a disk of its own. Without it a hard link that a build makes of a file below looks like another file.
"""

PROBE_PREFIX = ".overlay-probe-"
"""Name prefix of directories in which we test whether mounts work."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class OverlayLayers:
    """Directories of one overlay. `upper` and `work` are on one file system. `merged` is the mount point."""

    lower: Path
    upper: Path
    work: Path
    merged: Path


@dataclass
class UpperContents:
    """Contents of an upper directory. `hidden`: paths at which the lower content is hidden. `skipped`: directories that
    were not entered.
    """

    entries: list[WalkEntry] = field(default_factory=list)
    hidden: set[bytes] = field(default_factory=set)
    skipped: list[bytes] = field(default_factory=list)


def mount_overlay(layers: OverlayLayers, ids: IdMapping | None = None) -> None:
    """Mount at `merged`, an existing directory. `ids`: whose files the lower ones are shown as.

    Raises: OSError as mount(2); EINVAL for an unusable path.
    """
    if ids is None or ids.stored == ids.shown:
        _mount(layers)
        return
    view = view_of(layers.upper)
    with idmapped_view(layers.lower, view, ids):
        _mount(replace(layers, lower=view))


def view_of(upper: Path) -> Path:
    """The mount point of the lower directory's view, beside the upper directory. Used only while an overlay is being
    mounted.
    """
    return upper.with_name("view")


def _mount(layers: OverlayLayers) -> None:
    folders = (layers.lower, layers.upper, layers.work)
    if any(set(str(folder)) & set(',:\\"') for folder in folders):
        raise OSError(errno.EINVAL, "a path contains a character that separates mount options")
    lower, upper, work = folders
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{_OPTIONS}"
    if len(os.fsencode(options)) >= _PAGE:  # the kernel silently cuts the rest
        raise OSError(errno.ENAMETOOLONG, "the paths are too long for mount options")
    target, flags = os.fsencode(layers.merged), _MS_NODEV | _MS_NOSUID
    if _libc.mount(b"overlay", target, b"overlay", ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def unmount_overlay(merged: Path) -> None:
    """Unmount an overlay, if one is mounted. A process that still uses it keeps it until the process ends."""
    while is_mount_point(merged):
        if _libc.umount2(os.fsencode(merged), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            code = ctypes.get_errno()
            raise SandboxError(
                ErrorCode.INTERNAL,
                f"The overlay of {merged.name} cannot be unmounted",
                details=os.strerror(code),
                hint="Run the controller as root, as it was when the overlay was mounted.",
            )


def is_mount_point(path: Path) -> bool:
    """Whether a file system is mounted at this directory. False for a missing directory."""
    try:
        return os.lstat(path).st_dev != os.lstat(path.parent).st_dev
    except FileNotFoundError:
        return False


@contextmanager
def probe_mount(folder: Path) -> Iterator[Path]:
    """A directory inside a new mount below `folder`: only processes that see the mount see it. Raises: OSError."""
    with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=folder) as name:
        layers = _make_layers(Path(name))
        mount_overlay(layers)
        try:
            inside = Path(tempfile.mkdtemp(dir=layers.merged))
            yield inside
        finally:
            unmount_overlay(layers.merged)


def find_overlay_obstacle(folder: Path, ids: IdMapping | None = None) -> str:
    """Why overlays do not work below `folder`; empty if they work. Tests a deletion and a replaced directory.

    `ids`: as for `mount_overlay`; also tests that the lower files are shown with the other owner.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=folder) as name:
            return _try_overlay(Path(name), ids)
    except OSError as error:
        return error.strerror or str(error)


def _try_overlay(place: Path, ids: IdMapping | None) -> str:
    layers = _make_layers(place)
    (layers.lower / "folder").mkdir()
    (layers.lower / "file").touch()
    if ids:
        for path in (layers.lower, layers.lower / "folder", layers.lower / "file"):
            os.chown(path, *ids.stored)
    mount_overlay(layers, ids)
    try:
        seen = (layers.merged / "file").stat()
        if ids and (seen.st_uid, seen.st_gid) != ids.shown:
            return "the owner of lower files cannot be replaced"
        (layers.merged / "file").unlink()
        (layers.merged / "folder").rmdir()
        (layers.merged / "folder").mkdir()
    finally:
        unmount_overlay(layers.merged)
    found = read_upper(layers.upper, lambda _: False)
    return "" if found.hidden == {b"file", b"folder"} else "deletions cannot be read from the upper directory"


def _make_layers(place: Path) -> OverlayLayers:
    layers = OverlayLayers(*(place / name for name in ("lower", "upper", "work", "merged")))
    for path in (layers.lower, layers.upper, layers.work, layers.merged):
        path.mkdir()
    return layers


def read_upper(
    upper: Path, skip: Callable[[bytes], bool], limits: WalkLimits | None = None, start: bytes = b""
) -> UpperContents:
    """All names of an upper directory, or of `start` in it. Safe while a guest writes.

    `skip(path)`: whether not to enter a directory. Raises: `quota_exceeded` past the limits.
    """
    limits = limits or WalkLimits()
    found = UpperContents()
    root = os.open(upper, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen, name_bytes, pending = 0, 0, [start]
        while pending:
            folder = pending.pop()
            if folder.count(b"/") >= limits.depth:
                raise limits.too_deep_error()
            names = _list_directory(root, folder, found, limits.entries - seen)
            seen += len(names)
            name_bytes += sum(len(path) for path, _ in names)
            limits.require(seen, name_bytes)
            for path, is_entered in names:
                if is_entered and skip(path):
                    found.skipped.append(path)
                elif is_entered:
                    pending.append(path)
    finally:
        os.close(root)
    return found


def _list_directory(root: int, folder: bytes, found: UpperContents, most: int) -> list[tuple[bytes, bool]]:
    """Paths in one directory, each with whether to enter it; the classification is added to `found`.

    Reads at most one name more than `most`, so that refusing a huge directory is cheap.
    """
    try:
        fd = openat2(root, folder or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # removed or replaced since it was listed, or its path is too long: report it as rejected
        found.entries.append(WalkEntry(folder, EntryKind.REJECTED, executable=False, size=0))
        return []
    try:
        if folder and _is_opaque(fd):
            found.hidden.add(folder)
        with os.scandir(fd) as listed:
            names = sorted(os.fsencode(entry.name) for entry in islice(listed, most + 1))
        return [_classify_entry(fd, folder, name, found) for name in names]
    finally:
        os.close(fd)


def _classify_entry(fd: int, folder: bytes, name: bytes, found: UpperContents) -> tuple[bytes, bool]:
    path = folder + b"/" + name if folder else name
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return path, False  # removed meanwhile
    if stat.S_ISDIR(info.st_mode) and kind_of(name, info.st_mode) is EntryKind.DIRECTORY:
        return path, True
    found.hidden.add(path)
    if not (stat.S_ISCHR(info.st_mode) and info.st_rdev == _WHITEOUT):
        executable = bool(info.st_mode & stat.S_IXUSR)
        found.entries.append(WalkEntry(path, kind_of(name, info.st_mode), executable, info.st_size))
    return path, False


def _is_opaque(fd: int) -> bool:
    with suppress(OSError):
        return os.getxattr(f"/proc/self/fd/{fd}", _OPAQUE) == b"y"
    return False
