"""Whose limit led to a kill, by the files of version 2. Version 1 is in `tests/attack/test_s_memory.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.engine.cgroups import CgroupPaths
from sandbox.engine.kill_origin import KillOrigin


def write(folder: Path, own: int, shared: int) -> CgroupPaths:
    folder.mkdir(exist_ok=True)
    (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 9\noom {own}\noom_kill 5\n")
    (folder.parent / "memory.events.local").write_text(f"max 3\noom {shared}\noom_kill 0\n")
    return CgroupPaths(2, memory=folder)


@pytest.mark.parametrize(
    ("own", "shared", "is_host"),
    [(2, 4, False), (1, 5, True), (2, 5, True), (1, 4, True)],
    ids=["its own limit", "that of all", "both", "neither: the host's memory"],
)
def test_a_limit_that_was_reached_meanwhile_is_to_blame(tmp_path: Path, own: int, shared: int, is_host: bool) -> None:
    guest = tmp_path / "guest"
    with KillOrigin(write(guest, 1, 4)) as origin:
        write(guest, own, shared)
        assert origin.is_host_short() is is_host


@pytest.mark.parametrize("version", [1, 2])
def test_a_host_that_does_not_say_blames_the_guest(version: int, tmp_path: Path) -> None:
    for paths in (None, CgroupPaths(version), CgroupPaths(version, memory=tmp_path / "gone")):
        with KillOrigin(paths) as origin:
            assert origin.is_host_short() is False


def test_a_group_that_went_with_its_guest_leaves_the_word_to_the_one_above(tmp_path: Path) -> None:
    guest = tmp_path / "guest"
    with KillOrigin(write(guest, 0, 0)) as origin:
        write(guest, 0, 1)
        (guest / "memory.events").unlink()
        assert origin.is_host_short() is True
