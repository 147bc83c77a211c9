"""Counters from captured trees: version 1 from Linux 6.18 with Docker 20.10, version 2 written after cgroup-v2.rst."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine.cgroups import (
    CgroupPaths,
    Counters,
    Sampler,
    find_cgroups,
    read_counters,
    read_held_memory,
    read_kernel_memory,
    sum_written_bytes,
)

DATA = Path(__file__).parents[2] / "data"
PID = 4242
GROUP = "0123456789abcdef"


@pytest.fixture(params=["cgroup-v1", "cgroup-v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / request.param, tmp_path / "tree"))


def paths_of(tree: Path) -> CgroupPaths:
    found = find_cgroups(PID, tree / "sys", tree / "proc")
    assert found is not None
    return found


def test_version_1_counters() -> None:
    paths = paths_of(DATA / "cgroup-v1")
    assert paths.version == 1
    assert read_counters(paths) == Counters(
        cpu_time_s=0.068258276,
        memory_peak_bytes=55812096,
        pids_peak=6,
        oom_kills=0,
        forks_refused=3,
        disk_written_bytes=None,
        cpu_throttled_s=0.25,
    )


def test_version_2_counters() -> None:
    paths = paths_of(DATA / "cgroup-v2")
    assert paths.version == 2
    assert read_counters(paths) == Counters(
        cpu_time_s=1.5,
        memory_peak_bytes=104857600,
        pids_peak=17,
        oom_kills=2,
        forks_refused=4,
        disk_written_bytes=8292,
        cpu_throttled_s=0.004,
    )


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        ("", 0),
        ("259:0 rbytes=1 wbytes=50 rios=1 wios=1", 50),
        ("259:0 wbytes=50\n259:1 wbytes=7", 57),
        ("252:0 wbytes=50\n259:0 wbytes=50", 50),  # LVM; seen with Docker: netdata/netdata#1157
        ("7:3 wbytes=40\n252:0 wbytes=50\n259:0 wbytes=50", 50),  # a task's disk, on LVM
        ("7:3 wbytes=40\n259:0 wbytes=9", 40),  # what the loop device wrote is not counted there
        ("252:0 wbytes=50\n259:0 wbytes=0", 50),  # dm-crypt; seen: google/cadvisor#2316
    ],
    ids=["none", "disk", "two disks", "volume", "loop on a volume", "loop", "encrypted"],
)
def test_bytes_that_pass_several_devices_are_counted_once(lines: str, written: int, tmp_path: Path) -> None:
    for device, below in {"252:0": ["nvme0n1p3"], "259:0": [], "259:1": []}.items():
        (tmp_path / device / "slaves").mkdir(parents=True)
        for name in below:
            (tmp_path / device / "slaves" / name).symlink_to(tmp_path)
    assert sum_written_bytes(lines, tmp_path) == written


def test_version_2_counts_forks_that_the_bound_of_all_guests_refused(tree: Path) -> None:
    """Since Linux 6.11 they are in no file of the guest's own group. Version 1 counts them where the fork was."""
    paths = paths_of(tree)
    assert paths.pids is not None
    before = read_counters(paths).forks_refused
    assert before is not None
    (paths.pids.parent / "pids.events.local").write_text("max 5\n")
    assert read_counters(paths).forks_refused == before + (5 if paths.version > 1 else 0)


@pytest.mark.parametrize(("local", "refused"), [(None, 7), ("max 0", 0)], ids=["before Linux 6.11", "since"])
def test_s03_forks_of_cruns_guest_are_counted_one_group_below(tmp_path: Path, local: str | None, refused: int) -> None:
    """Since Linux 6.11 the group with the limit counts those of the groups below it, too: 0 in this sample."""
    scope = tmp_path / f"libpod-{GROUP}.scope"
    write_group(scope, pids_events="max 0", cpu_stat="usage_usec 1\nthrottled_usec 0")
    write_group(scope / "container", pids_events="max 7", cpu_stat="usage_usec 1\nthrottled_usec 9000000")
    if local is not None:
        (scope / "container" / "pids.events.local").write_text(f"{local}\n")
    counters = read_counters(CgroupPaths(2, pids=scope, quota=scope))
    assert (counters.forks_refused, counters.cpu_throttled_s) == (refused, 9.0)


def write_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(f"{content}\n")


@pytest.mark.parametrize(
    ("above", "found"),
    [
        ({"pids_max": "100", "pids_peak": "99"}, False),
        ({"pids_max": "max", "pids_peak": "5000"}, False),
        ({"pids_max": "100", "pids_peak": "100"}, True),
        ({"pids_max": "80", "pids_peak": "99"}, True),  # it was lowered
        ({"pids_max": "100"}, None),  # before Linux 6.1
    ],
    ids=["room", "no limit", "full", "lowered", "no peak"],
)
def test_s03_only_a_group_that_was_full_can_have_refused_a_fork(
    tmp_path: Path, above: dict[str, str], found: bool | None
) -> None:
    """Not asked for without a refused fork, and unknown if the top of the hierarchy is not visible."""
    write_group(tmp_path / "top", cgroup_procs="")
    write_group(tmp_path / "top" / "all", **above)
    pids = tmp_path / "top" / "all" / "guest"
    write_group(pids, pids_max="64", pids_peak="64", pids_events="max 1")
    paths = CgroupPaths(1, pids=pids)
    assert read_counters(paths).pids_were_full_above is found
    (tmp_path / "top" / "cgroup.procs").unlink()
    assert read_counters(paths).pids_were_full_above is (found or None)
    (pids / "pids.events").write_text("max 0\n")
    assert read_counters(paths).pids_were_full_above is None


def test_older_kernels_give_the_current_value_instead_of_the_peak(tree: Path) -> None:
    for peak in tree.rglob("*.peak"):
        peak.unlink()
    counters = read_counters(paths_of(tree))
    assert counters.pids_peak == (2 if (tree / "sys" / "pids").exists() else 4)
    assert counters.memory_peak_bytes == (55812096 if (tree / "sys" / "pids").exists() else 52428800)


def test_missing_files_are_none_never_zero(tree: Path) -> None:
    paths = paths_of(tree)
    for file in (tree / "sys").rglob("*"):
        if file.is_file():
            file.unlink()
    assert read_counters(paths) == Counters()


def test_garbage_is_none(tree: Path) -> None:
    paths = paths_of(tree)
    for file in (tree / "sys").rglob("*"):
        if file.is_file():
            file.write_bytes(b"max\n\xff")
    assert read_counters(paths) == Counters()


def test_joint_hierarchy_is_found(tmp_path: Path) -> None:
    (tmp_path / "proc" / str(PID)).mkdir(parents=True)
    (tmp_path / "proc" / str(PID) / "cgroup").write_text(f"5:cpu,cpuacct:/docker/{GROUP}\n")
    folder = tmp_path / "sys" / "cpu,cpuacct" / "docker" / GROUP
    folder.mkdir(parents=True)
    (folder / "cpuacct.usage").write_text("2000000000\n")
    assert read_counters(paths_of(tmp_path)) == Counters(cpu_time_s=2.0)
    (folder / "cpu.stat").write_text("nr_throttled 1\nthrottled_time 500000000\n")
    assert read_counters(paths_of(tmp_path)) == Counters(cpu_time_s=2.0, cpu_throttled_s=0.5)


@pytest.mark.parametrize("path", ["/", "", "/../../docker/x", "/gone"])
def test_group_that_is_not_the_containers_is_not_read(tree: Path, path: str) -> None:
    cgroup = tree / "proc" / str(PID) / "cgroup"
    lines = [line.rpartition(":")[0] + f":{path}" for line in cgroup.read_text().splitlines()]
    cgroup.write_text("\n".join(lines))
    found = find_cgroups(PID, tree / "sys", tree / "proc")
    assert found in (None, CgroupPaths(1))


def test_a_group_outside_of_our_namespace_is_found_where_the_hierarchy_is_mounted_from_its_top(tree: Path) -> None:
    expected = paths_of(tree)
    cgroup = tree / "proc" / str(PID) / "cgroup"
    lines = [line.split(":", 2) for line in cgroup.read_text().splitlines()]
    cgroup.write_text("\n".join(f"{number}:{name}:/../..{path}" for number, name, path in lines))
    assert paths_of(tree) == expected


@pytest.mark.parametrize("above", ["system.slice", "a.slice/a-b.slice"])
def test_s221_a_sibling_outside_of_our_namespace_is_found_below_their_parent(tmp_path: Path, above: str) -> None:
    """The kernel leaves out the names above the parent that two groups have in common. Control: without the id of a
    container any group of that name would do.
    """
    scope = f"docker-{GROUP * 4}.scope"
    (tmp_path / "sys" / above / scope).mkdir(parents=True)
    (tmp_path / "sys" / above / "init.scope").mkdir()
    (tmp_path / "sys" / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "proc" / str(PID)).mkdir(parents=True)
    (tmp_path / "proc" / str(PID) / "cgroup").write_text(f"0::/../{scope}\n")
    assert paths_of(tmp_path).memory == tmp_path / "sys" / above / scope
    (tmp_path / "proc" / str(PID) / "cgroup").write_text("0::/../init.scope\n")
    assert find_cgroups(PID, tmp_path / "sys", tmp_path / "proc") is None


@pytest.mark.parametrize("path", ["/..", "/../x/../docker"])
def test_a_path_that_climbs_is_no_group(tree: Path, path: str) -> None:
    (tree / "sys" / "x").mkdir()
    test_group_that_is_not_the_containers_is_not_read(tree, path)


def test_vanished_process_is_not_located(tree: Path) -> None:
    assert find_cgroups(1, tree / "sys", tree / "proc") is None


def test_merge_keeps_the_larger_and_the_known() -> None:
    merged = Counters(cpu_time_s=1.0, pids_peak=9, oom_kills=0).merge_max(Counters(cpu_time_s=2.0, pids_peak=3))
    assert merged == Counters(cpu_time_s=2.0, pids_peak=9, oom_kills=0)


def test_sampler_keeps_the_peak_between_start_and_end() -> None:
    seen = threading.Event()
    values = iter([2, 50])

    def reader(_: CgroupPaths) -> Counters:
        value = next(values, None)
        if value is None:
            seen.set()
        return Counters(pids_peak=value or 3)

    with Sampler(CgroupPaths(2), interval_s=0.001, reader=reader) as sampler:
        assert seen.wait(10)
    assert sampler.counters == Counters(pids_peak=50)


def test_sampler_keeps_the_last_values_when_the_group_vanishes(tree: Path) -> None:
    with Sampler(paths_of(tree)) as sampler:
        expected = sampler.counters
        shutil.rmtree(tree)
    assert sampler.counters == expected
    assert expected.memory_peak_bytes is not None


def test_sampler_without_a_group_measures_nothing() -> None:
    with Sampler(None) as sampler:
        pass
    assert sampler.counters == Counters()


def test_sampler_ends_its_thread_when_the_body_raises() -> None:
    with pytest.raises(KeyError), Sampler(CgroupPaths(2), interval_s=0.001):
        raise KeyError
    assert not any(thread.name == "cgroup-sampler" for thread in threading.enumerate())


def test_sampler_stops_at_once_whatever_the_interval() -> None:
    calls: Iterator[Counters] = iter([Counters(), Counters(oom_kills=1)])
    with Sampler(CgroupPaths(2), interval_s=3600, reader=lambda _: next(calls)) as sampler:
        pass
    assert sampler.counters.oom_kills == 1


def test_memory_that_no_file_holds(tmp_path: Path) -> None:
    """The page cache is not counted: 500 MB of it are no reason to remove a container."""
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 500000000\nshmem 20\n")
    assert read_held_memory(CgroupPaths(2, memory=tmp_path)) == 1020
    (tmp_path / "memory.stat").write_text("rss 1\nshmem 1\ntotal_cache 500000000\ntotal_rss 3000\ntotal_shmem 4\n")
    assert read_held_memory(CgroupPaths(1, memory=tmp_path)) == 3004
    (tmp_path / "memory.stat").write_text("anon 1000\n")
    assert read_held_memory(CgroupPaths(2, memory=tmp_path)) is None
    assert read_held_memory(CgroupPaths(2)) is None


def test_s138_memory_of_the_kernel_without_what_it_takes_back(tmp_path: Path) -> None:
    """Semaphores and message queues are neither `anon` nor `shmem`."""
    group, stat = CgroupPaths(2, memory=tmp_path), tmp_path / "memory.stat"
    stat.write_text("anon 1\nkernel 5000\nslab_reclaimable 800\nslab_unreclaimable 300\nvmalloc 7\n")
    assert read_kernel_memory(group) == 4200
    stat.write_text("anon 1\nkernel_stack 10\npagetables 20\nslab_reclaimable 800\nslab_unreclaimable 300\nvmalloc 7\n")
    assert read_kernel_memory(group) == 337, "Linux before 5.18"
    (tmp_path / "memory.kmem.usage_in_bytes").write_text("9000\n")
    assert read_kernel_memory(CgroupPaths(1, memory=tmp_path)) == 9000
    assert read_kernel_memory(CgroupPaths(1)) == read_kernel_memory(CgroupPaths(2)) == 0


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/machine.slice/libpod-0123.scope/container", "machine.slice/libpod-0123.scope"),
        ("/space-sandbox/libpod-0123", "space-sandbox/libpod-0123"),
        ("/system.slice/docker-0123.scope", "system.slice/docker-0123.scope"),
        ("/x/container", "x/container"),  # of another engine
    ],
)
def test_the_group_with_the_limits_is_found(tmp_path: Path, path: str, folder: str) -> None:
    """crun puts the guest one group below the one that has its limits."""
    (tmp_path / "sys" / path.lstrip("/")).mkdir(parents=True)
    (tmp_path / "sys" / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "proc" / str(PID)).mkdir(parents=True)
    (tmp_path / "proc" / str(PID) / "cgroup").write_text(f"0::{path}\n")
    assert paths_of(tmp_path).memory == tmp_path / "sys" / folder
