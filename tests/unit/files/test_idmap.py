"""Views of a directory with another owner, and overlays over them. Needs the right to mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.files.idmap import IdMapping, idmapped_view, remove_view
from sandbox.files.overlay_mounts import (
    OverlayLayers,
    find_overlay_obstacle,
    is_mount_point,
    mount_overlay,
    unmount_overlay,
    view_of,
)

IDS = IdMapping((64_000, 64_000), (66_017, 66_018))


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[OverlayLayers]:
    if reason := find_overlay_obstacle(tmp_path, IDS):
        unavailable(f"No overlays for users of their own here: {reason}")
    made = OverlayLayers(*(tmp_path / name for name in ("lower", "upper", "work", "merged")))
    for path in (made.lower, made.upper, made.work, made.merged):
        path.mkdir()
    (made.lower / "file").write_text("below")
    os.chown(made.lower / "file", *IDS.stored)
    os.chown(made.lower, *IDS.stored)
    os.chown(made.upper, *IDS.shown)
    yield made
    unmount_overlay(made.merged)


def owner(path: Path) -> tuple[int, int]:
    seen = path.lstat()
    return seen.st_uid, seen.st_gid


def test_lower_files_belong_to_the_new_owner_and_stay_as_they_are(layers: OverlayLayers) -> None:
    """Control: without a mapping they belong to the old one."""
    mount_overlay(layers)
    assert owner(layers.merged / "file") == IDS.stored
    unmount_overlay(layers.merged)
    mount_overlay(layers, IDS)
    assert owner(layers.merged / "file") == owner(layers.merged) == IDS.shown
    (layers.merged / "file").write_text("above")
    assert owner(layers.upper / "file") == IDS.shown
    assert (owner(layers.lower / "file"), (layers.lower / "file").read_text()) == (IDS.stored, "below")


def test_only_that_owner_may_write(layers: OverlayLayers) -> None:
    mount_overlay(layers, IDS)
    assert [may_append(layers.merged / "file", user) for user in (IDS.stored, IDS.shown)] == [False, True]


def may_append(path: Path, user: tuple[int, int]) -> bool:
    """Whether a process of this user may write to the file."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(path.parent)
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
            os.close(os.open(path.name, os.O_WRONLY | os.O_APPEND))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def test_the_view_is_gone_once_the_overlay_is_mounted(layers: OverlayLayers) -> None:
    mount_overlay(layers, IDS)
    assert not view_of(layers.upper).exists()
    assert str(view_of(layers.upper)) not in {
        row.split()[4] for row in Path("/proc/self/mountinfo").read_text().splitlines()
    }


def test_what_a_killed_controller_left_is_no_obstacle(layers: OverlayLayers) -> None:
    view = view_of(layers.upper)
    with idmapped_view(layers.lower, view, IDS):
        assert owner(view / "file") == IDS.shown
        with pytest.raises(OSError, match="Read-only"):
            (view / "file").write_text("x")
        mount_overlay(layers, IDS)  # as if the controller had been killed above
    assert is_mount_point(layers.merged)
    unmount_overlay(layers.merged)
    view.mkdir()  # killed before its mount, or after it was taken away
    mount_overlay(layers, IDS)
    assert (is_mount_point(layers.merged), view.exists()) == (True, False)
    remove_view(view)  # nothing is there: fine


def test_an_owner_that_is_not_mapped_cannot_be_used(layers: OverlayLayers) -> None:
    (layers.lower / "of-root").touch()
    mount_overlay(layers, IDS)
    with pytest.raises(OSError, match=r"Permission denied|Value too large"):
        (layers.merged / "of-root").write_text("x")
