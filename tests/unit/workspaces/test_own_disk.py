"""The disk of one worktree: its size, its life, and what a kill or a second reader does to it. Ids: THREATS S05."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.home_files import copy_sparsely
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.files import checkout
from sandbox.files.checkout import remove_tree
from sandbox.files.disk_images import DiskSize, find_disk_obstacle, mount_disk
from sandbox.files.disk_usage import is_full
from sandbox.files.loop_devices import is_attached
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import is_mount_point
from sandbox.workspaces.own_disk import (
    NewDisk,
    create_own_disk,
    ensure_disk_mounted,
    free_spare_if_full,
    image_of,
    measure_own_disk,
    open_upper,
    remove_with_mounts,
    restore_spare,
    settle_disk,
    unmount_disk,
)
from tests.unit.conftest import refused

MIB = 1024**2
SIZE = DiskSize(16 * MIB, 500)


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Path]:
    """Layers with a disk that is mounted."""
    if reason := find_disk_obstacle(tmp_path):
        unavailable(f"no disk can be made: {reason}")
    made = tmp_path / "layers"
    made.mkdir()
    create_own_disk(made, NewDisk(SIZE, tmp_path / "templates", is_required=True), (66001, 66001))
    (made / "disk" / "upper").mkdir()
    yield made
    unmount_below(tmp_path)


def wait_until_detached(layers: Path) -> None:
    """A container that another test starts at this moment copies the mounts of the host, and drops them in its next
    step: until then the device is in use.
    """
    deadline = time.monotonic() + 30
    while is_attached(image_of(layers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_attached(image_of(layers))


def fill(path: Path) -> int:
    """Write until the disk refuses; return the errno."""
    with path.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(64 * 1024))
        except OSError as error:
            return error.errno or 0


def test_a_new_disk_takes_little_and_holds_its_size(layers: Path) -> None:
    assert image_of(layers).stat().st_blocks * 512 < MIB
    assert image_of(layers).stat().st_mode & 0o777 == 0o600
    assert fill(layers / "disk" / "f") == errno.ENOSPC
    assert SIZE.bytes <= (layers / "disk" / "f").stat().st_size < SIZE.bytes + 4 * MIB


def test_files_end_at_their_number(layers: Path) -> None:
    upper = layers / "disk" / "upper"

    def create_files() -> None:
        for number in range(2 * SIZE.files):
            (upper / str(number)).touch()

    with pytest.raises(OSError, match="No space left"):
        create_files()
    assert len(list(upper.iterdir())) >= SIZE.files


def test_the_owner_is_known_whether_it_is_mounted_or_not(layers: Path) -> None:
    mounted = (layers / "disk").stat().st_uid
    unmount_disk(layers)
    assert (mounted, (layers / "disk").stat().st_uid) == (66001, 66001)


def test_what_was_written_is_there_after_it_was_mounted_again(layers: Path) -> None:
    (layers / "disk" / "upper" / "f").write_bytes(b"content")
    unmount_disk(layers)
    wait_until_detached(layers)
    ensure_disk_mounted(layers)
    assert (layers / "disk" / "upper" / "f").read_bytes() == b"content"


def test_a_disk_that_a_process_still_uses_is_never_attached_twice(layers: Path) -> None:
    """Two devices over one image would destroy it. Control: the process sees what is written after the second mount."""
    held = os.open(layers / "disk" / "upper", os.O_RDONLY)
    try:
        unmount_disk(layers)
        assert is_attached(image_of(layers))
        ensure_disk_mounted(layers)
        (layers / "disk" / "upper" / "new").write_bytes(b"x")
        assert os.listdir(held) == ["new"]  # noqa: PTH208 - of a descriptor
    finally:
        os.close(held)


def test_a_disk_that_is_mounted_while_its_directory_is_deleted_goes_too(
    layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mount(2) attaches long after it looked the mount point up. Control: what deletes nothing but files fails."""

    def open_late(name: bytes, above: int | None) -> int:
        if late and name.startswith(b".sandbox-remove-"):
            mount_disk(late.pop(), layers / os.fsdecode(name))
        return open_directory(name, above)

    open_directory = checkout._open_directory
    (layers / "disk" / "upper" / "inner").mkdir()
    unmount_disk(layers)
    wait_until_detached(layers)
    kept = layers.parent / "kept.img"
    os.link(image_of(layers), kept)
    late = [kept, kept]
    monkeypatch.setattr(checkout, "_open_directory", open_late)
    with refused(ErrorCode.INTERNAL) as told:
        remove_tree(layers)
    assert "cross-device" in told.value.details
    remove_with_mounts(layers)
    assert (late, layers.exists()) == ([], False)


def test_an_unmounted_disk_is_read_beside_and_stays_unmounted(layers: Path) -> None:
    (layers / "disk" / "upper" / "f").write_bytes(b"content")
    unmount_disk(layers)
    with open_upper(layers) as upper, open_upper(layers) as second:
        assert [(place / "f").read_bytes() for place in (upper, second)] == [b"content"] * 2
        assert not is_mount_point(layers / "disk")
    wait_until_detached(layers)
    assert sorted(path.name for path in layers.iterdir()) == ["disk", "disk.img"]


def test_a_full_disk_gives_its_spare_space_to_edits_and_takes_it_back(layers: Path) -> None:
    fill(layers / "disk" / "f")
    assert is_full(measure_own_disk(layers))
    free_spare_if_full(layers)
    (layers / "disk" / "upper" / "edit").write_bytes(b"x" * MIB)
    restore_spare(layers)
    assert not (layers / "disk" / "spare").exists()
    (layers / "disk" / "f").unlink()
    restore_spare(layers)
    assert (layers / "disk" / "spare").exists()


def test_the_spare_space_is_not_counted_as_used(layers: Path) -> None:
    assert measure_own_disk(layers).used_bytes < 256 * 1024
    assert measure_own_disk(layers).used_files <= 1


def test_deleted_files_are_given_back_to_the_host(layers: Path) -> None:
    (layers / "disk" / "f").write_bytes(os.urandom(8 * MIB))
    os.sync()
    assert image_of(layers).stat().st_blocks * 512 > 8 * MIB
    (layers / "disk" / "f").unlink()
    os.sync()
    settle_disk(layers)
    assert image_of(layers).stat().st_blocks * 512 < 2 * MIB


def test_a_disk_that_was_in_use_when_the_power_failed_is_repaired(layers: Path, tmp_path: Path) -> None:
    """The image is copied while it is mounted, as a power failure leaves it."""
    (layers / "disk" / "upper" / "f").write_bytes(b"content")
    os.sync()
    copy = tmp_path / "copy.img"
    copy_sparsely(str(image_of(layers)), str(copy))
    (tmp_path / "place").mkdir()
    mount_disk(copy, tmp_path / "place")
    assert (tmp_path / "place" / "upper" / "f").read_bytes() == b"content"


def test_a_damaged_image_is_an_error_that_says_what_to_do(layers: Path) -> None:
    unmount_disk(layers)
    os.truncate(image_of(layers), 4096)
    with refused(ErrorCode.INTERNAL) as caught:
        ensure_disk_mounted(layers)
    assert "task clean" in caught.value.hint


def test_nothing_is_left_where_a_disk_cannot_be_made(layers: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="File exists"):
        create_own_disk(other, NewDisk(SIZE, tmp_path / "file" / "templates", is_required=True), None)
    assert list(other.iterdir()) == []
