"""The table of guests, with an engine in memory."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandbox.cli.top import _row, _summarize
from sandbox.engine.container_labels import (
    CHECK_LABEL,
    FETCH_LABEL,
    INSTANCE_LABEL,
    RUN_LABEL,
    TASK_LABEL,
    TENANT_LABEL,
)
from sandbox.engine.protocol import ContainerEngine
from sandbox.models import Guest, GuestKind, GuestTable
from sandbox.store.quarantine import QuarantineNotes
from sandbox.store.run_queue import NoMemoryDemand, RunQueue
from sandbox.store.stop_requests import register_request
from sandbox.workbench.checks.guest_list import list_guests
from sandbox.workbench.controller.services import build_services
from tests.unit.memory_engine import MemoryEngine

ONE, OTHER = (f"task-{uuid.UUID(int=n)}" for n in range(2))
RUN = f"run-{'0' * 32}"


def test_guests_are_told_with_what_runs_in_them(tmp_path: Path) -> None:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as services:
        home = services.home
        ours = {INSTANCE_LABEL: home.instance_id}
        engine = MemoryEngine(QuarantineNotes(home.quarantine))
        as_protocol: ContainerEngine = engine
        services.__dict__["engine"] = services.__dict__["guest_engine"] = as_protocol
        services.__dict__["engine_facts"] = {}
        engine.add_container("idle", ours | {TASK_LABEL: OTHER, TENANT_LABEL: "acme"})
        engine.add_container("task", ours | {TASK_LABEL: ONE})
        engine.add_container("room", ours | {TASK_LABEL: ONE, RUN_LABEL: RUN, CHECK_LABEL: "lint"})
        engine.add_container("fetch", ours | {RUN_LABEL: RUN, FETCH_LABEL: "pip"})
        engine.add_container("foreign", {INSTANCE_LABEL: "another home", TASK_LABEL: ONE})
        home.stop_requests.mkdir()
        home.guest_mark(ONE).touch()
        with register_request(home.stop_requests, ONE) as request:
            request.note_begin("test")
            found = {guest.container: guest for guest in list_guests(services).guests}
    assert {name: (g.kind, g.busy, g.check_ids) for name, g in found.items()} == {
        "fetch": (GuestKind.FETCH, True, ()),
        "room": (GuestKind.CLEAN_ROOM, True, ("lint",)),
        "task": (GuestKind.TASK, True, ("test",)),
        "idle": (GuestKind.TASK, False, ()),
    }
    assert list(found)[-1] == "idle"
    assert [guest.tenant for guest in found.values()] == [None, None, None, "acme"]


def test_a_spare_is_no_idle_task(tmp_path: Path) -> None:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as services:
        engine = MemoryEngine(QuarantineNotes(services.home.quarantine))
        as_protocol: ContainerEngine = engine
        services.__dict__["engine"] = services.__dict__["guest_engine"] = as_protocol
        services.__dict__["engine_facts"] = {}
        ours = {INSTANCE_LABEL: services.home.instance_id}
        for name, task in (("spare", ONE), ("idle", OTHER)):
            engine.add_container(name, ours | {TASK_LABEL: task})
        services.home.spare_mark(ONE).parent.mkdir(exist_ok=True)
        services.home.spare_mark(ONE).touch()
        before = list_guests(services)
        services.home.spare_mark(ONE).unlink()  # as it is taken over
        after = list_guests(services)
    assert {guest.container: guest.kind for guest in before.guests} == {
        "spare": GuestKind.SPARE,
        "idle": GuestKind.TASK,
    }
    assert {_row(guest)[2] for guest in before.guests if guest.container == "spare"} == {"-"}
    assert (_summarize(before).split(" - ")[0], _summarize(after).split(" - ")[0]) == (
        "0 running, 1 idle, 1 spare, 0 waiting",
        "0 running, 2 idle, 0 waiting",
    )


def test_cpu_time_since_the_look_before_is_a_rate(tmp_path: Path) -> None:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as services:
        engine = MemoryEngine(QuarantineNotes(services.home.quarantine))
        as_protocol: ContainerEngine = engine
        services.__dict__["engine"] = services.__dict__["guest_engine"] = as_protocol
        services.__dict__["engine_facts"] = {"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}
        engine.add_container("task", {INSTANCE_LABEL: services.home.instance_id, TASK_LABEL: ONE})
        before = Guest(container="task", kind=GuestKind.TASK, busy=True, cpu_time_s=1.0)
        earlier = GuestTable(at=datetime.now(UTC) - timedelta(seconds=2), guests=(before,), waiting=0)
        (now,) = list_guests(services, earlier).guests
        assert now.cpus_used is None, "no counters, no rate"


def test_the_checks_that_wait_have_their_owners_the_next_one_first(tmp_path: Path) -> None:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as services:
        engine: ContainerEngine = MemoryEngine(QuarantineNotes(services.home.quarantine))
        services.__dict__["engine"] = services.__dict__["guest_engine"] = engine
        services.__dict__["engine_facts"] = {}
        line = RunQueue(services.check_queue.folder, 1)
        services.__dict__["check_queue"] = line
        with line.wait_for_slot(ONE, lambda: False, lambda _: None):
            assert list_guests(services).queue == (), "it runs"
            ended = threading.Event()
            threads = [threading.Thread(target=wait_for_end, args=(line, owner, ended)) for owner in (OTHER, "repo")]
            for number, thread in enumerate(threads, 1):
                thread.start()
                until = time.monotonic() + 60
                while (found := list_guests(services)).waiting != number:
                    assert time.monotonic() < until
            ended.set()
        for thread in threads:
            thread.join(60)
    assert [one.owner for one in found.queue] == [OTHER, "repo"]
    assert found.queue[0].memory_bytes == 7 * 2**20
    assert _summarize(found) == f"0 running, 0 idle, 2 waiting ({OTHER}, repo)"


def wait_for_end(line: RunQueue, owner: str, ended: threading.Event) -> None:
    class Demand(NoMemoryDemand):
        needed_bytes = 7 * 2**20

    with line.wait_for_slot(owner, ended.is_set, lambda _: None, Demand()):
        pass
