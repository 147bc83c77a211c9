"""Pressure from captured files of Linux 6.18: those of a control group, and those of the host in the same form."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandbox.engine.cgroups import CgroupPaths, find_cgroups
from sandbox.engine.pressure import PressureReading, WaitSums, compare_readings, read_pressure
from sandbox.models import Pressure

DATA = Path(__file__).parents[2] / "data"
CAPTURED = WaitSums(cpu_s=12.683625, memory_s=0.0, io_s=0.093267)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The host's files, as captured from a group: `cpu` instead of `cpu.pressure`."""
    for file in (DATA / "cgroup-v2").rglob("*.pressure"):
        shutil.copyfile(file, tmp_path / file.stem)
    return tmp_path


@pytest.mark.parametrize("tree", ["cgroup-v1", "cgroup-v2"])
def test_the_sums_of_a_guest_come_from_its_group_of_version_2(tree: str, tmp_path: Path) -> None:
    """Version 1 has none; the tree was captured where systemd mounts a version 2 hierarchy beside it."""
    paths = find_cgroups(4242, DATA / tree / "sys", DATA / tree / "proc")
    assert paths is not None
    assert read_pressure(paths, tmp_path / "none") == PressureReading(guest=CAPTURED)


def test_the_host_is_read_too(host: Path) -> None:
    assert read_pressure(CgroupPaths(1), host) == PressureReading(host=CAPTURED)


@pytest.mark.parametrize("content", [b"", b"\xff", b"full avg10=0.00 total=7\n", b"some total=\n"])
def test_what_cannot_be_read_is_unknown_never_zero(host: Path, content: bytes) -> None:
    for name in ("cpu", "memory"):
        (host / name).write_bytes(content)
    (host / "io").unlink()
    assert read_pressure(CgroupPaths(1), host) == PressureReading()


A, B = WaitSums(1.0, 2.0, None), WaitSums(1.5, 2.0, 9.0)
COMPARED = {
    "guest-first": (PressureReading(A, A), PressureReading(B, B), Pressure(of="guest", cpu_s=0.5, memory_s=0.0)),
    "guest-without": (PressureReading(host=A), PressureReading(host=B), Pressure(of="host", cpu_s=0.5, memory_s=0.0)),
    "guest-gone": (PressureReading(A, A), PressureReading(host=B), Pressure(of="host", cpu_s=0.5, memory_s=0.0)),
    "neither": (PressureReading(), PressureReading(A, A), None),
}


@pytest.mark.parametrize(("before", "after", "found"), COMPARED.values(), ids=COMPARED)
def test_the_guests_waits_count_before_the_hosts(
    before: PressureReading, after: PressureReading, found: Pressure | None
) -> None:
    assert compare_readings(before, after) == found
