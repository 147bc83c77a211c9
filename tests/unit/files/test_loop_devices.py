"""Which device a file has, where the kernel or /dev does not answer. With real devices: test_own_disk.py."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.files import loop_devices
from sandbox.files.loop_devices import attach_image, is_attached

DEVICE = "loop99999"  # no host has so many


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_bytes(b"content")
    return path


@pytest.fixture
def backing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with one device in use, behind which is what this file of its sysfs says."""
    path = tmp_path / "block" / DEVICE / "loop" / "backing_file"
    path.parent.mkdir(parents=True)
    (tmp_path / "block" / "loop7").mkdir()  # not in use
    monkeypatch.setattr(loop_devices, "_SYSTEM", tmp_path / "block")
    return path


@contextmanager
def refusing(code: int) -> Iterator[None]:
    """The device cannot be opened, with this error."""
    opened = os.open

    def fail(path: Any, *options: Any, **more: Any) -> int:
        if str(path) == f"/dev/{DEVICE}":
            raise OSError(code, os.strerror(code), str(path))
        return opened(path, *options, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "open", fail)
        yield


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.ENOENT, errno.EIO], ids=errno.errorcode.get)
def test_an_image_gets_no_second_device_while_it_is_unknown_whether_it_has_one(
    image: Path, backing_file: Path, code: int
) -> None:
    """Two devices of one file destroy it, as does a repair below a mounted one."""
    backing_file.write_text(f"{image} (deleted)\n")
    repaired: list[Path] = []
    with refusing(code):
        with pytest.raises(OSError, match=os.strerror(code)):
            is_attached(image)
        with pytest.raises(OSError, match=os.strerror(code)), attach_image(image, repaired.append):
            pass
    assert repaired == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOENT], ids=errno.errorcode.get)
@pytest.mark.parametrize("other", ["/snaps/core22_1.snap", "/home/layers/repo/other/disk.img", "/{parent}/x/disk.img"])
def test_a_device_of_another_file_is_in_no_way(image: Path, backing_file: Path, code: int, other: str) -> None:
    """As that of another task, without a node in the /dev of a container: each disk is called `disk.img`."""
    backing_file.write_text(f"{other.format(parent=image.parent.name)}\n")
    with refusing(code):
        assert not is_attached(image)


@pytest.mark.parametrize("seen", ["/{parent}/disk.img", "/elsewhere/{parent}/disk.img", "/disk.img"])
def test_a_device_of_a_file_that_is_seen_through_another_mount_may_be_the_one(
    image: Path, backing_file: Path, seen: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """sysfs names it below the mount of another container; and without the symlinks of our path."""
    link = tmp_path_factory.mktemp("links") / "home"
    link.symlink_to(image.parent)
    backing_file.write_text(f"{seen.format(parent=image.parent.name)} (deleted)\n")
    for path in (image, link / image.name):
        with refusing(errno.ENOENT), pytest.raises(FileNotFoundError):
            is_attached(path)


@pytest.mark.parametrize("code", [errno.ENXIO, errno.ENOENT], ids=errno.errorcode.get)
def test_a_device_that_was_cleared_meanwhile_is_none(image: Path, backing_file: Path, code: int) -> None:
    """ENXIO: the device has no file. Else sysfs has none."""
    if code == errno.ENXIO:
        backing_file.write_text(f"{image}\n")
    with refusing(code):
        assert not is_attached(image)


def test_devices_that_cannot_be_listed_are_unknown(image: Path, backing_file: Path) -> None:
    """Control: where there are none the image is not attached."""
    assert not is_attached(image)
    shutil.rmtree(backing_file.parents[2])
    with pytest.raises(FileNotFoundError):
        is_attached(image)
