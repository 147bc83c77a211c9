"""The group of all guests with the real engine and kernel: its limits, and that guests are in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.engine.cgroups import CGROUP_ROOT, find_cgroups
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import task_container_name
from sandbox.engine.guest_group import GroupHost, GroupLimits, GuestGroup, ensure_guest_group, read_group_host
from sandbox.store.home import Home
from tests.docker.bench import Bench, opened_bench

MIB = 1024**2
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")


@pytest.fixture
def group(engine: DockerEngine) -> Iterator[tuple[GroupHost, str]]:
    host, name = read_group_host(engine.info()), f"space-test-{secrets.token_hex(4)}"
    if host is None or host.driver != "cgroupfs":
        pytest.skip("the group would be a slice of systemd")
    yield host, name
    for folder in (CGROUP_ROOT / name, *CGROUP_ROOT.glob(f"*/{name}")):
        with suppress(OSError):
            folder.rmdir()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened_bench(tmp_path) as made:
        yield made


def test_the_kernel_takes_higher_and_lower_limits(group: tuple[GroupHost, str]) -> None:
    """Version 1 has two limits, one of which may never be below the other."""
    host, name = group
    for mib in (64, 128, 32):
        made = ensure_guest_group(host, name, GroupLimits(mib * MIB + 1, 100 + mib, 512))
        assert (made.memory_bytes, made.obstacle) == (mib * MIB, "")
        folder = host.find_directory(name, "memory")
        limits = [folder / f"memory.{which}" for which in ("limit_in_bytes", "memsw.limit_in_bytes", "max")]
        assert {int(path.read_text()) for path in limits if path.exists()} == {mib * MIB}
        assert (host.find_directory(name, "pids") / "pids.max").read_text() == f"{100 + mib}\n"


def test_a_task_container_and_the_engine_agree_on_the_group(bench: Bench, engine: DockerEngine) -> None:
    task = bench.task()
    bench.workbench.run_checks(task, ["quick"])
    name = task_container_name(Home(bench.home).instance_id, task)
    found = engine.api.inspect_container(name)
    paths = find_cgroups(int(found["State"]["Pid"]))
    assert paths is not None
    assert paths.memory is not None
    group = GuestGroup("", 1, "", type(paths)(paths.version, memory=paths.memory.parent))
    assert found["HostConfig"]["CgroupParent"].removeprefix("/") == paths.memory.parent.name
    assert 0 < group.read_held_bytes_of(found["Id"]) <= (group.read_held_bytes() or 0)
    (line,) = [probe for probe in bench.workbench.doctor() if probe.name == "guest memory"]
    assert line.level == "ok", line
