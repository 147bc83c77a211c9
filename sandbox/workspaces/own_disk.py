"""The disk of one worktree: a file system of a fixed size for its upper directory and its report (docs/adr/0049).

In the layers directory: `disk.img`, and `disk`, where it is mounted. Layers without an image hold `upper` and `work`
themselves. In the disk: `upper`, `work`, `report`, and `spare`, space that is set free when the disk is full, so that
edits and mounts still work.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import NO_SPACE, ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.disk_images import DiskSize, create_disk, ensure_template, mount_disk, trim_disk
from sandbox.files.disk_usage import DiskUse, FreeSpace, is_full
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import is_mount_point, unmount_overlay
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox import guest_labels
else:  # loaded at first use (docs/adr/0080)
    guest_labels = LazyModule("sandbox.guest_labels")

_log = logging.getLogger(__name__)

_IMAGE, _MOUNT, _SPARE = "disk.img", "disk", "spare"
_SPARE_BYTES, _SPARE_FILES = 4 * 1024**2, 16
_LATE_MOUNTS = 3
"""How often a directory is unmounted again while it is deleted."""
_SYSTEM_FILES = 14  # of a new worktree: the reserved inodes of ext4, and the directories above the guest's files


@dataclass(frozen=True)
class NewDisk:
    """The disk that a new worktree gets. `templates`: folder of the templates. `is_required`: without one it fails."""

    size: DiskSize
    templates: Path
    is_required: bool


def image_of(layers: Path) -> Path:
    """The image of a worktree's disk."""
    return layers / _IMAGE


def has_disk(layers: Path) -> bool:
    """Whether a worktree has a disk of its own."""
    return image_of(layers).exists()


def find_files(layers: Path) -> Path:
    """The directory that holds `upper` and `work`: the disk, or the layers themselves."""
    return layers / _MOUNT if has_disk(layers) else layers


def create_own_disk(layers: Path, new: NewDisk, owner: tuple[int, int] | None) -> None:
    """Create and mount the disk of a new worktree. `owner`: of its files, also recorded as that of the mount point.

    Raises: OSError; then no part of it is left.
    """
    place, image = layers / _MOUNT, image_of(layers)
    try:
        place.mkdir(mode=0o700)
        size = DiskSize(new.size.bytes + _SPARE_BYTES, new.size.files + _SPARE_FILES + 1)
        create_disk(image, ensure_template(new.templates, size))
        if owner is not None:
            os.chown(place, *owner)
        mount_disk(image, place, is_new=True)
        place.chmod(0o700)
        if owner is not None:
            os.chown(place, *owner)
        guest_labels.label_for_guests(place)
        (place / "lost+found").rmdir()
        _create_spare(place)
    except OSError:
        unmount_overlay(place)
        image.unlink(missing_ok=True)
        remove_tree(place)
        raise


def create_disk_if_possible(layers: Path, new: NewDisk, owner: tuple[int, int] | None) -> None:
    """As `create_own_disk`; on a host that makes no disks this makes no disk, unless it is required.

    Raises: OSError without space for it; `policy_violation` if a required one is impossible.
    """
    try:
        create_own_disk(layers, new, owner)
    except OSError as error:
        if error.errno in NO_SPACE:  # no reason to do without a limit
            raise
        if new.is_required:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                "workspaces.disk is 'image', but this host cannot make a disk for a task",
                details=error.strerror or str(error),
                hint="Run the controller as root on a host with loop devices and mke2fs, or set it to 'auto'.",
            ) from error
        _log.warning("%s has no disk of its own: %s", layers.name, error)


def ensure_disk_mounted(layers: Path) -> None:
    """Mount the disk of a worktree, if it has one that is not mounted. The caller holds a lock of the worktree.

    Raises: `internal` if the disk is damaged, or this controller cannot mount it.
    """
    place = layers / _MOUNT
    if not has_disk(layers) or is_mount_point(place):
        return
    _mount(layers, place)
    free_spare_if_full(layers)


def _mount(layers: Path, place: Path) -> None:
    try:
        mount_disk(image_of(layers), place)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The disk of worktree {layers.name} could not be mounted",
            details=error.strerror or str(error),
            hint="Run the controller as root. `sandbox task clean TASK` creates a new worktree from the last commit or "
            "snapshot.",
        ) from error


@contextmanager
def open_upper(layers: Path) -> Iterator[Path]:
    """The upper directory, for reading. A disk that is not mounted is mounted beside, for this block only.

    Raises: as `ensure_disk_mounted`.
    """
    if not has_disk(layers) or is_mount_point(layers / _MOUNT):
        yield find_files(layers) / "upper"
        return
    place = Path(tempfile.mkdtemp(prefix="look-", dir=layers))
    try:
        _mount(layers, place)
        yield place / "upper"
    finally:
        unmount_overlay(place)
        with suppress(OSError):  # the worktree was removed meanwhile
            place.rmdir()


def unmount_disk(layers: Path) -> None:
    """Unmount the disk of a worktree, also where a killed reader mounted it. Processes that use it keep it."""
    if has_disk(layers):  # the kernel's table is not read: that costs milliseconds on a host with hundreds of mounts
        for place in layers.iterdir():
            if place.is_dir():
                unmount_overlay(place)


def remove_with_mounts(folder: Path) -> None:
    """Delete a directory of a worktree that was renamed for that, with disks that are mounted in it.

    A reader has no lock: it may have looked up its mount point before the renaming and mount the disk only now.
    Raises: `internal`.
    """
    unmount_disk(folder)
    for _ in range(_LATE_MOUNTS):
        try:
            return remove_tree(folder)
        except SandboxError:
            unmount_below(folder)
    return remove_tree(folder)


def measure_own_disk(layers: Path) -> FreeSpace:
    """Free space of the disk, and what its worktree uses of it. Raises: OSError."""
    place = layers / _MOUNT
    seen, spare = FreeSpace.of(place), _measure_spare(place)
    return FreeSpace(
        used_bytes=max(seen.used_bytes - spare.bytes, 0),
        used_files=max(seen.used_files - spare.files - _SYSTEM_FILES, 0),
        free_bytes=seen.free_bytes,
        free_files=seen.free_files,
    )


def is_disk_mounted(layers: Path) -> bool:
    """Whether the disk is mounted. True for a worktree without one."""
    return not has_disk(layers) or is_mount_point(layers / _MOUNT)


def has_failed(layers: Path) -> bool:
    """Whether the disk is mounted and the kernel refuses to write to it, because the host had no space for a write.

    ext4 notices at the next change, and new kernels do not show it in the flags (seen in 6.18): so this changes a time
    and opens a file without a name.
    """
    place = layers / _MOUNT
    if not has_disk(layers) or not is_mount_point(place):
        return False
    try:
        os.utime(place)
        os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return error.errno in {errno.EROFS, errno.EIO}
    return False


def free_spare_if_full(layers: Path) -> None:
    """Set the spare space of a full disk free. The caller makes sure that no guest runs, which would take it."""
    spare = layers / _MOUNT / _SPARE
    if spare.is_dir() and is_full(measure_own_disk(layers)):
        remove_tree(spare)


def settle_disk(layers: Path) -> None:
    """After a check: give the space of deleted files back to the host, and the spare space of a full disk to edits."""
    if has_disk(layers):
        with suppress(OSError):  # the worktree was removed meanwhile
            free_spare_if_full(layers)
        trim_disk(layers / _MOUNT)


def restore_spare(layers: Path) -> None:
    """Take spare space again before a guest runs, if there is enough."""
    place = layers / _MOUNT
    if has_disk(layers) and not (place / _SPARE).exists():
        with suppress(OSError):
            if FreeSpace.of(place).free_bytes > 2 * _SPARE_BYTES:
                _create_spare(place)


def _create_spare(place: Path) -> None:
    """Files that hold inodes; the first also holds blocks, which are allocated but not written."""
    spare = place / _SPARE
    spare.mkdir(mode=0o700)
    for number in range(_SPARE_FILES):
        fd = os.open(spare / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if number == 0:
                os.posix_fallocate(fd, 0, _SPARE_BYTES)
        finally:
            os.close(fd)


def _measure_spare(place: Path) -> DiskUse:
    with suppress(OSError):
        return DiskUse(os.stat(f"{place}/{_SPARE}/0").st_blocks * 512, _SPARE_FILES + 1)  # noqa: PTH116 - called often
    return DiskUse()
