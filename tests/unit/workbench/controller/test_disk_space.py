"""The size of the disk of a new worktree. That such a disk can be made: tests/unit/workspaces/test_own_disk.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.requirement import unavailable
from sandbox.files.disk_images import find_disk_obstacle
from sandbox.files.mount_points import unmount_below
from sandbox.models import Check, Limits
from sandbox.workbench.controller.disk_space import choose_disk
from sandbox.workspaces.own_disk import create_own_disk


def services(folder: Path, disk: str = "image") -> Any:
    workspaces = SimpleNamespace(disk=disk)
    return SimpleNamespace(
        settings=SimpleNamespace(workspaces=workspaces), home=SimpleNamespace(disk_templates=folder / "templates")
    )


@pytest.mark.parametrize("least", [1, 500_000])
def test_the_disk_of_a_task_can_be_made_for_any_limit(tmp_path: Path, least: int) -> None:
    """The tables of an ext4 with so many files are larger than such a limit; the watch knows the limit itself."""
    if reason := find_disk_obstacle(tmp_path):
        unavailable(f"no disk can be made: {reason}")
    check = Check(id="test", label="test", argv=("true",), limits=Limits(disk_bytes=least))
    new = choose_disk(services(tmp_path), [check], is_room=False)
    assert new is not None
    layers = tmp_path / "layers"
    layers.mkdir()
    try:
        create_own_disk(layers, new, None)
    finally:
        unmount_below(tmp_path)


def test_a_home_that_counts_makes_no_disk(tmp_path: Path) -> None:
    assert choose_disk(services(tmp_path, "watch"), [], is_room=False) is None
