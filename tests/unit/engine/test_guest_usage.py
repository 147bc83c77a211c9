"""What a guest uses of its limits, on trees of files as the kernel makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.engine.guest_group import GroupHost
from sandbox.engine.guest_usage import GuestUsage, find_guest_cgroups, read_guest_usage

ID = "0123456789abcdef" * 4
EXPECTED = GuestUsage(3072, 4096, 1.5, 2.0, 7, 512)


def never(_arguments: object) -> None:
    raise AssertionError


def write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("group", ["space-sandbox", ""], ids=["our-group", "engines-own"])
def test_usage_and_limits_of_version_1_are_read_below_either_parent(tmp_path: Path, group: str) -> None:
    below = f"{group or 'docker'}/{ID}"
    memory = {"memory.stat": "total_rss 1024\ntotal_shmem 2048\n", "memory.limit_in_bytes": "4096\n"}
    write(tmp_path / "memory" / below, memory)
    quota = {"cpuacct.usage": "1500000000", "cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}
    write(tmp_path / "cpu,cpuacct" / below, quota)
    write(tmp_path / "pids" / below, {"pids.current": "7\n", "pids.max": "512\n"})
    found = find_guest_cgroups(GroupHost("cgroupfs", 1, tmp_path, never, "docker"), ID, group)
    assert found is not None
    assert read_guest_usage(found) == EXPECTED


@pytest.mark.parametrize("parent", ["space.slice/space-sandbox.slice", "system.slice"])
def test_usage_and_limits_of_version_2_are_read_below_either_parent(tmp_path: Path, parent: str) -> None:
    one = {
        "memory.stat": "anon 1024\nshmem 2048\n", "memory.max": "4096\n", "cpu.stat": "usage_usec 1500000\n",
        "cpu.max": "200000 100000\n", "pids.current": "7\n", "pids.max": "512\n",
    }  # fmt: skip
    write(tmp_path / parent / f"docker-{ID}.scope", one)
    found = find_guest_cgroups(GroupHost("systemd", 2, tmp_path, never, "system.slice"), ID, "space-sandbox")
    assert found is not None
    assert read_guest_usage(found) == EXPECTED


def test_no_limit_is_none_and_a_guest_that_ended_has_no_groups(tmp_path: Path) -> None:
    host = GroupHost("cgroupfs", 2, tmp_path, never)
    assert find_guest_cgroups(host, ID, "g") is None
    write(tmp_path / "g" / ID, {"memory.max": "max\n", "cpu.max": "max 100000\n", "pids.max": "max\n"})
    found = find_guest_cgroups(host, ID, "g")
    assert found is not None
    assert read_guest_usage(found) == GuestUsage()
