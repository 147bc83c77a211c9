"""When a check may start beside others and beside idle containers, with an engine in memory and a group of files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.engine.cgroups import CgroupPaths
from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL, TASK_LABEL, task_container_name
from sandbox.engine.guest_group import GuestGroup
from sandbox.engine.protocol import ContainerEngine
from sandbox.models import Limits, ServiceLimits
from sandbox.store.quarantine import QuarantineNotes
from sandbox.store.queue_tickets import MIB, Ticket
from sandbox.workbench.checks.memory_admission import MemoryAdmission, demand_memory, remove_if_idle
from sandbox.workbench.controller.guest_memory import build_group_limits
from sandbox.workbench.controller.services import Services, build_services
from tests.unit.memory_engine import MemoryEngine

TASKS = tuple(f"task-{uuid.UUID(int=n)}" for n in range(4))
BOUND = 100 * MIB


class Host:
    """A home with idle containers in one group."""

    def __init__(self, services: Services, groups: Path) -> None:
        self.services, self.groups = services, groups
        self.engine = MemoryEngine(QuarantineNotes(services.home.quarantine))
        as_protocol: ContainerEngine = self.engine
        services.__dict__["engine"] = as_protocol
        self.group = GuestGroup("/g", BOUND, "", CgroupPaths(2, memory=groups))
        self.hold(groups, 0)

    def hold(self, folder: Path, mib: int) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "memory.stat").write_text(f"anon 0\nshmem {mib * MIB}\n")

    def add(self, task: str, mib: int, **labels: str) -> str:
        """Add a container that holds memory."""
        home = self.services.home
        name = task_container_name(home.instance_id, task) if not labels else f"sandbox-{len(self.engine.containers)}"
        container_id = self.engine.add_container(
            name, {INSTANCE_LABEL: home.instance_id, TASK_LABEL: task, **labels}, home.root / "repositories"
        )
        self.hold(self.groups / container_id, mib)
        home.report(task).mkdir(parents=True, exist_ok=True)
        self.hold(self.groups, sum(self.read_mib(path) for path in self.groups.iterdir() if path.is_dir()))
        return name

    def read_mib(self, folder: Path) -> int:
        return int((folder / "memory.stat").read_text().split()[-1]) // MIB

    def demand(self, mib: int, owner: str = TASKS[0]) -> MemoryAdmission:
        return MemoryAdmission(self.services, self.group, BOUND, mib * MIB, owner)

    @property
    def names(self) -> list[str]:
        return sorted(container.name for container in self.engine.containers.values())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as services:
        services.home.ensure_file("instance", b"0123456789abcdef", fixed=False)
        yield Host(services, tmp_path / "groups")


def running(mib: int, owner: str = TASKS[3]) -> list[Ticket]:
    return [Ticket(True, 1, 1, f"{mib:016x}", owner, mib)] if mib else []


@pytest.mark.parametrize(
    ("promised", "held", "needed", "fits"),
    [(0, 0, 100, True), (40, 0, 60, True), (40, 0, 61, False), (0, 41, 60, False), (20, 20, 60, True)],
)
def test_promises_and_what_is_held_count_together(
    host: Host, promised: int, held: int, needed: int, fits: bool
) -> None:
    host.hold(host.groups, held)
    assert host.demand(needed).fits(running(promised)) is fits


def test_the_container_that_was_used_longest_ago_is_removed_first(host: Host) -> None:
    """Only as many as have to go."""
    old, *rest = (host.add(task, 30) for task in (TASKS[2], TASKS[1], TASKS[3]))
    for task in (TASKS[2], TASKS[1], TASKS[3]):
        os.utime(host.services.home.report(task))
    demand = host.demand(35)
    assert not demand.fits([])
    assert demand.make_room([])
    assert old not in host.names
    assert host.names == sorted(rest)


def test_a_container_in_use_is_not_removed(host: Host) -> None:
    """Its task is locked, or the mark says that a check runs in it. Then nothing is left to wait for."""
    names = [host.add(task, 30) for task in TASKS[1:3]]
    host.services.home.guest_mark(TASKS[1]).parent.mkdir(parents=True, exist_ok=True)
    host.services.home.guest_mark(TASKS[1]).write_text("1")
    with host.services.home.locked(TASKS[2]):
        assert host.demand(80).make_room([])
        assert host.names == sorted(names)
        assert not remove_if_idle(host.services, TASKS[2])
    assert remove_if_idle(host.services, TASKS[2])
    assert not remove_if_idle(host.services, TASKS[1])


def test_a_check_waits_for_others_of_its_home_only(host: Host) -> None:
    """Memory of other homes counts, and does not keep a home without a running check from starting one."""
    host.hold(host.groups, 70)
    demand = host.demand(40)
    assert not demand.make_room(running(20))
    assert not demand.fits(running(20))
    assert demand.make_room([])
    assert demand.fits([])


def test_what_running_checks_and_this_one_hold_counts_once(host: Host) -> None:
    """Control: an idle container of the same size does not leave the room."""
    host.add(TASKS[3], 40, **{RUN_LABEL: "run-1"})
    host.add(TASKS[0], 30)
    host.services.home.guest_mark(TASKS[0]).parent.mkdir(parents=True, exist_ok=True)
    host.services.home.guest_mark(TASKS[0]).write_text("1")
    demand = host.demand(50)
    assert not demand.fits(running(50))
    assert demand.make_room(running(50))
    host.hold(host.groups, 110)
    assert not host.demand(50).make_room(running(50))


def test_containers_are_not_looked_at_again_at_once(host: Host) -> None:
    demand = host.demand(60)
    assert not demand.make_room(running(50))
    host.add(TASKS[1], 10)
    assert not demand.make_room(running(50))
    assert len(host.names) == 1
    assert not demand.make_room(running(45)), "another set of checks is another question"
    assert host.names == []


def test_the_demand_of_a_check_is_its_limit_and_those_of_its_services(host: Host) -> None:
    """The bound holds for promises even without a group."""
    limits = (Limits(memory_bytes=40 * MIB), ServiceLimits(memory_bytes=24 * MIB))
    demand = demand_memory(host.services, limits, TASKS[0])
    assert demand.needed_bytes == 64 * MIB
    bound = build_group_limits(host.services.policies.container.container).memory_bytes // MIB
    assert demand.fits(running(bound - 64))
    assert not demand.fits(running(bound - 63))
