"""The control group of all guests, on trees of files as the kernel and systemd make them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox.engine.cgroups import CgroupPaths
from sandbox.engine.guest_group import (
    GroupHost,
    GroupLimits,
    GuestGroup,
    ensure_guest_group,
    parent_name,
    read_effective_cpus,
    read_group_host,
    remove_guest_group,
    require_in_group,
    run_systemctl,
    run_user_systemctl,
)
from sandbox.errors import ErrorCode, SandboxError

GIB = 1024**3
LIMITS = GroupLimits(20 * GIB, 4000, 1024)
NAME = "space-sandbox"


def never(arguments: Sequence[str]) -> None:
    raise AssertionError(arguments)


@pytest.fixture
def version_1(tmp_path: Path) -> GroupHost:
    for controller in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / controller).mkdir()
    return GroupHost("cgroupfs", 1, tmp_path, never)


@pytest.fixture
def version_2(tmp_path: Path) -> GroupHost:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    return GroupHost("cgroupfs", 2, tmp_path, never)


def test_the_cpus_of_guests_are_those_of_their_group_or_of_all_groups_of_the_engine(
    version_1: GroupHost, version_2: GroupHost, tmp_path: Path
) -> None:
    """The kernel keeps `effective` free of CPUs that are offline. A new group of version 1 has none yet."""
    for host, folder, file in (
        (version_1, tmp_path / "cpuset", "cpuset.effective_cpus"),
        (version_2, tmp_path, "cpuset.cpus.effective"),
    ):
        assert read_effective_cpus(host, NAME) == ""
        hold_text(folder, file, "0-3,6\n")
        hold_text(folder / NAME, file, "\n")
        assert read_effective_cpus(host, NAME) == "0-3,6"
        hold_text(folder / NAME, file, "2-3\n")
        assert read_effective_cpus(host, NAME) == "2-3"
        assert read_effective_cpus(host, "") == "0-3,6"


def hold_text(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def hold(folder: Path, name: str, **stat: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{key} {value}\n" for key, value in stat.items()))


def test_version_1_gets_a_group_in_each_hierarchy(version_1: GroupHost, tmp_path: Path) -> None:
    memory = tmp_path / "memory" / NAME
    memory.mkdir()
    (memory / "memory.memsw.limit_in_bytes").write_text("9223372036854771712\n")
    (memory / "memory.kmem.tcp.limit_in_bytes").write_text("9223372036854771712\n")
    group = ensure_guest_group(version_1, NAME, LIMITS)
    assert (group.parent, group.memory_bytes, group.obstacle) == ("/space-sandbox", 20 * GIB, "")
    found = {path.name: path.read_text() for path in tmp_path.rglob(f"{NAME}/*") if path.name != "memory.use_hierarchy"}
    assert found == {
        "memory.limit_in_bytes": str(20 * GIB),
        "memory.memsw.limit_in_bytes": str(20 * GIB),
        "memory.kmem.tcp.limit_in_bytes": str(20 * GIB // 2),
        "pids.max": "4000",
        "cpu.shares": "1024",
    }


def test_version_2_gets_one_group(version_2: GroupHost, tmp_path: Path) -> None:
    group = ensure_guest_group(version_2, NAME, LIMITS)
    assert (group.parent, group.memory_bytes, group.obstacle) == ("/space-sandbox", 20 * GIB, "")
    found = {path.name: path.read_text() for path in (tmp_path / NAME).iterdir()}
    assert {"memory.max": str(20 * GIB), "pids.max": "4000", "cpu.weight": "39"}.items() <= found.items()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_a_group_that_is_as_it_should_be_is_not_written(version_1: GroupHost, tmp_path: Path) -> None:
    odd = GroupLimits(20 * GIB + 1, 4000, 1024)  # the kernel rounds down to pages
    ensure_guest_group(version_1, NAME, LIMITS)
    limit = tmp_path / "memory" / NAME / "memory.limit_in_bytes"
    os.utime(limit, (1, 1))
    assert ensure_guest_group(version_1, NAME, odd).memory_bytes == 20 * GIB
    assert limit.stat().st_mtime == 1
    ensure_guest_group(version_1, NAME, GroupLimits(19 * GIB, 4000, 1024))
    assert limit.read_text() == str(19 * GIB)


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_is_not_lowered_below_what_guests_hold(version: int, tmp_path: Path) -> None:
    """Version 2 would kill them."""
    host = GroupHost("cgroupfs", version, tmp_path, never)
    for controller in ("memory", "pids", "cpu"):
        (tmp_path / controller).mkdir()
    ensure_guest_group(host, NAME, LIMITS)
    names = ("total_rss", "total_shmem") if version == 1 else ("anon", "shmem")
    hold(host.find_directory(NAME, "memory"), "memory.stat", **dict.fromkeys(names, GIB))
    group = ensure_guest_group(host, NAME, GroupLimits(GIB, 4000, 1024))
    assert group.memory_bytes == 20 * GIB
    assert "guests hold 2 GiB" in group.obstacle
    assert group.read_held_bytes() == 2 * GIB


def test_a_controller_that_may_not_make_it_uses_the_one_that_is_there(version_1: GroupHost, tmp_path: Path) -> None:
    ensure_guest_group(version_1, NAME, LIMITS)
    blocked = tmp_path / "pids" / NAME / "pids.max"
    blocked.unlink()
    blocked.mkdir()  # writing fails, for root too
    group = ensure_guest_group(version_1, NAME, LIMITS)
    assert (group.parent, group.memory_bytes) == ("/space-sandbox", 20 * GIB)
    assert "pids.max" in group.obstacle


def test_without_a_limit_there_is_no_group(version_1: GroupHost, tmp_path: Path) -> None:
    (tmp_path / "memory" / NAME).write_text("")  # a directory cannot be made here
    group = ensure_guest_group(version_1, NAME, LIMITS)
    assert (group.parent, group.memory_bytes, group.read_held_bytes()) == ("", None, None)
    assert NAME in group.obstacle
    assert "no group" in ensure_guest_group(version_1, "", LIMITS).obstacle
    assert "no control groups" in ensure_guest_group(None, NAME, LIMITS).obstacle


@pytest.mark.parametrize("version", [1, 2])
def test_systemd_makes_a_slice(version: int, tmp_path: Path) -> None:
    """Not run here with a real systemd: the calls follow systemctl(1) and systemd.resource-control(5)."""
    said: list[str] = []
    base = tmp_path if version == 2 else tmp_path / "memory"

    def obey(arguments: Sequence[str]) -> None:
        said.append(" ".join(arguments))
        folder = base / "space.slice" / "space-sandbox.slice"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(20 * GIB))
        (folder / "memory.kmem.tcp.limit_in_bytes").write_text("9223372036854771712\n")

    group = ensure_guest_group(GroupHost("systemd", version, tmp_path, obey), NAME, LIMITS)
    assert (group.parent, group.memory_bytes) == ("space-sandbox.slice", 20 * GIB)
    memory = (
        "MemoryMax=21474836480 MemorySwapMax=0 CPUWeight=39"
        if version == 2
        else "MemoryLimit=21474836480 CPUShares=1024"
    )
    assert said == [
        f"set-property --runtime space-sandbox.slice {memory} TasksMax=4000",
        "start space-sandbox.slice",
    ], "set first: a slice that was started is without a limit until then"
    sockets = (base / "space.slice" / "space-sandbox.slice" / "memory.kmem.tcp.limit_in_bytes").read_text()
    assert (sockets == str(20 * GIB // 2)) == (version == 1), "systemd has no setting for it"


def test_a_slice_is_stopped_and_its_settings_are_taken_back() -> None:
    """As systemctl(1) says, also when one of both fails."""
    asked: list[Sequence[str]] = []

    def refuse(arguments: Sequence[str]) -> None:
        asked.append(arguments)
        raise OSError(errno.EPERM, "no")

    remove_guest_group(GroupHost("systemd", 2, Path("/nonexistent"), refuse), NAME)
    assert asked == [("stop", f"{NAME}.slice"), ("revert", f"{NAME}.slice")]


def test_a_limit_that_systemd_writes_after_its_answer_is_waited_for(tmp_path: Path) -> None:
    """Control: a guest would have no group, because none has a limit yet."""
    written = threading.Timer(0.05, lambda: hold_limit(tmp_path / "space.slice" / "space-sandbox.slice"))

    def answer_early(arguments: Sequence[str]) -> None:
        if arguments[0] == "start":
            written.start()

    group = ensure_guest_group(GroupHost("systemd", 2, tmp_path, answer_early), NAME, LIMITS)
    written.join()
    assert (group.parent, group.memory_bytes, group.obstacle) == ("space-sandbox.slice", 20 * GIB, "")


def hold_limit(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(str(20 * GIB))


def test_a_refusal_of_systemd_is_an_obstacle(tmp_path: Path) -> None:
    def refuse(_: Sequence[str]) -> None:
        raise OSError("Access denied")

    group = ensure_guest_group(GroupHost("systemd", 2, tmp_path, refuse), NAME, LIMITS)
    assert (group.parent, group.obstacle) == ("", "Access denied")


def test_a_missing_systemctl_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.engine.guest_group.SYSTEMCTL", str(tmp_path / "none"))
    group = ensure_guest_group(GroupHost("systemd", 2, tmp_path, run_systemctl), NAME, LIMITS)
    assert ("No such file" if os.geteuid() == 0 else "only root") in group.obstacle


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}, ("cgroupfs", 1)),
        ({"CgroupDriver": "systemd", "CgroupVersion": "2"}, ("systemd", 2)),
        ({"CgroupDriver": "none", "CgroupVersion": "2"}, None),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "unknown"}, None),
        ({}, None),
    ],
)
def test_the_engine_says_how_it_uses_groups(info: dict[str, str], found: tuple[str, int] | None) -> None:
    host = read_group_host(info)
    assert (host and (host.driver, host.version)) == found


def test_the_groups_of_a_rootless_engine_are_below_those_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    info = {"CgroupDriver": "systemd", "CgroupVersion": "2", "SecurityOptions": ["name=rootless"]}
    host = read_group_host(info)
    assert host is not None
    above = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
    assert str(host.find_directory(NAME, "memory")) == f"{above}/space.slice/space-sandbox.slice"
    assert (host.systemctl, host.default_parent) == (run_user_systemctl, "user.slice")
    assert read_group_host({**info, "CgroupDriver": "cgroupfs"}) is None


def test_the_engine_calls_the_group_as_its_driver_does() -> None:
    names = [parent_name(NAME, driver) for driver in ("cgroupfs", "systemd")]
    assert names == ["/space-sandbox", "space-sandbox.slice"]
    assert parent_name("", "systemd") == ""


def test_memory_of_one_guest_is_found_by_its_id(tmp_path: Path) -> None:
    group = GuestGroup("/x", GIB, "", CgroupPaths(2, memory=tmp_path))
    hold(tmp_path / "c1", "memory.stat", anon=1, shmem=2)
    hold(tmp_path / "docker-c2.scope", "memory.stat", anon=3, shmem=4)
    assert [group.read_held_bytes_of(name) for name in ("c1", "c2", "c3")] == [3, 7, 0]
    assert GuestGroup().read_held_bytes_of("c1") == 0


def test_a_guest_outside_of_the_group_is_refused(tmp_path: Path) -> None:
    require_in_group(CgroupPaths(1, memory=tmp_path / "space-sandbox" / "id"), "/space-sandbox")
    require_in_group(CgroupPaths(2, memory=tmp_path / "space-sandbox.slice" / "docker-id.scope"), "space-sandbox.slice")
    require_in_group(CgroupPaths(1, memory=tmp_path / "docker" / "id"), "")
    require_in_group(None, "/space-sandbox")
    with pytest.raises(SandboxError) as caught:
        require_in_group(CgroupPaths(1, memory=tmp_path / "docker" / "id"), "/space-sandbox")
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
