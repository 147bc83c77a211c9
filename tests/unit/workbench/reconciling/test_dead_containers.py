"""Which containers of a home are left by a dead controller or a closed task, with an engine that is not Docker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.engine.container_labels import INSTANCE_LABEL, TASK_LABEL, task_container_name
from sandbox.engine.protocol import ContainerEngine
from sandbox.models import Leftover, LeftoverAction
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.services import Services, build_services
from sandbox.workbench.reconciling import clean_up_after_kill
from sandbox.workbench.reconciling.dead_containers import find_dead_guests
from sandbox.workbench.reconciling.quarantined_containers import find_quarantined
from sandbox.workbench.reconciling.reconciler import Reconciler
from tests.unit.memory_engine import MemoryEngine

RUN_LABEL = "space.sandbox.run"
TASK = f"task-{uuid.UUID(int=7)}"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with closing(build_services(tmp_path / "home", {}, allow_file=True)) as made:
        made.home.ensure_file("instance", b"0123456789abcdef", fixed=False)
        yield made


@pytest.fixture
def engine(services: Services) -> MemoryEngine:
    made = MemoryEngine(QuarantineNotes(services.home.quarantine))
    as_protocol: ContainerEngine = made  # the type checker compares the signatures here
    services.__dict__["engine"] = as_protocol
    return made


def reconcile(services: Services) -> list[Leftover]:
    survey = Reconciler(services)
    for finder in (find_dead_guests, find_quarantined):
        survey.run_finder(finder)
    return survey.done


def add_guest(services: Services, engine: MemoryEngine, name: str, **labels: str) -> str:
    ours = {INSTANCE_LABEL: services.home.instance_id, **labels}
    return engine.add_container(name, ours, services.home.root / "repositories")


def test_the_container_of_a_closed_task_is_removed(services: Services, engine: MemoryEngine) -> None:
    name = task_container_name(services.home.instance_id, TASK)
    add_guest(services, engine, name, **{TASK_LABEL: TASK})
    (done,) = reconcile(services)
    assert (done.kind, done.name, done.action) == ("container", name, LeftoverAction.REMOVED)
    assert engine.containers == {}


def test_a_run_of_a_dead_controller_is_removed_and_one_of_a_live_controller_is_kept(
    services: Services, engine: MemoryEngine
) -> None:
    dead, live = f"run-{'0' * 12}{uuid.uuid4().hex[:20]}", f"run-{services.presence.new_id()}"
    for run in (dead, live):
        add_guest(services, engine, f"sandbox-{run}", **{RUN_LABEL: run})
    (done,) = reconcile(services)
    assert (done.name, done.action) == (f"sandbox-{dead}", LeftoverAction.REMOVED)
    assert [c.name for c in engine.containers.values()] == [f"sandbox-{live}"]


def test_containers_of_other_homes_are_kept(services: Services, engine: MemoryEngine, tmp_path: Path) -> None:
    engine.add_container("other", {INSTANCE_LABEL: "f" * 16, TASK_LABEL: TASK}, services.home.root / "repositories")
    engine.add_container("copy", {INSTANCE_LABEL: services.home.instance_id, TASK_LABEL: TASK}, tmp_path / "elsewhere")
    (done,) = reconcile(services)
    assert (done.name, done.action) == ("copy", LeftoverAction.KEPT)
    assert len(engine.containers) == 2


def test_a_container_that_cannot_be_removed_is_busy_until_the_engine_can(
    services: Services, engine: MemoryEngine
) -> None:
    name = task_container_name(services.home.instance_id, TASK)
    engine.hung.add(add_guest(services, engine, name, **{TASK_LABEL: TASK}))
    assert {(done.name, done.action) for done in reconcile(services)} == {(name, LeftoverAction.BUSY)}
    assert [done.action for done in reconcile(services)] == [LeftoverAction.BUSY]
    engine.hung.clear()
    assert [(done.name, done.action) for done in reconcile(services)] == [(name, LeftoverAction.REMOVED)]
    assert engine.containers == {}
    assert reconcile(services) == []


def test_the_next_controller_after_a_kill_removes_what_the_engine_can_remove_by_then(
    services: Services, engine: MemoryEngine
) -> None:
    """The engine was restarted meanwhile. Control: a container that it still cannot end stays quarantined."""
    for number in (1, 2):
        name = f"quarantined-{number}"
        engine.hung.add(add_guest(services, engine, name, **{TASK_LABEL: TASK}))
        engine.remove_container(name)
    engine.hung.pop()
    (stays,) = [c.name for c in engine.containers.values() if c.id in engine.hung]
    services.home.liveness.mkdir(exist_ok=True)
    (services.home.liveness / f"1-{'0' * 12}").write_bytes(b"engine\n")
    clean_up_after_kill(services)
    assert [c.name for c in engine.containers.values()] == [stays]
    assert list(QuarantineNotes(services.home.quarantine).names()) == [stays]


def test_an_engine_that_did_not_answer_is_not_asked_about_each_quarantined_container(
    services: Services, engine: MemoryEngine
) -> None:
    engine.hung.add(add_guest(services, engine, "quarantined", **{TASK_LABEL: TASK}))
    engine.remove_container("quarantined")
    survey = Reconciler(services)
    assert [found.name for found in find_quarantined(survey)] == ["quarantined"]
    survey.guests_unknown = "it does not answer"
    assert list(find_quarantined(survey)) == []
