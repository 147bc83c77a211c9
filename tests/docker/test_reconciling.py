"""Which containers `gc` takes: those of the dead and of tasks that are over, of this home and no other. THREATS P12."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.engine.connection import DockerEngine
from sandbox.files.mount_points import unmount_below
from sandbox.models import LeftoverAction
from sandbox.store.home import Home
from sandbox.store.liveness import LiveController
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from sandbox.workbench.reconciling.reconciler import Reconciler
from sandbox.workbench.reconciling.room_leftovers import find_dead_rooms
from tests.unit.conftest import initialised
from tests.unit.desk import Desk

pytestmark = pytest.mark.slow
Make = Callable[..., str]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(initialised(tmp_path / "upstream"), tmp_path / "sandbox-home")
    (desk.home / "instance").write_text(uuid.uuid4().hex[:16])
    with desk.workbench:
        yield desk
    unmount_below(tmp_path)


@pytest.fixture
def make(engine: DockerEngine, base_image: str, desk: Desk) -> Iterator[Make]:
    """A container with our labels and something of our home; `running` starts it."""
    made: list[str] = []

    def one(*, running: bool = False, instance: str = "", home: Path = desk.home, **labels: str) -> str:
        ours = instance or Home(desk.home).instance_id
        marks = {f"space.sandbox.{key}": value for key, value in {"instance": ours, **labels}.items()}
        name = f"sandbox-test-{uuid.uuid4().hex}"
        config = engine.api.create_host_config(binds=[f"{home}/instance:/mark:ro"], network_mode="none")
        created = engine.api.create_container(base_image, ["sleep", "600"], name=name, labels=marks, host_config=config)
        made.append(created["Id"])
        if running:
            engine.api.start(created["Id"])
        return name

    yield one
    for container in engine.api.containers(all=True):
        if container["Id"] in made:
            engine.api.remove_container(container["Id"], force=True)


def names(engine: DockerEngine) -> set[str]:
    return {c["Names"][0].removeprefix("/") for c in engine.api.containers(all=True)}


def collected(desk: Desk) -> dict[str, LeftoverAction]:
    with Workbench(desk.home, environ={k: v for k, v in os.environ.items() if k == "DOCKER_HOST"}) as other:
        return {x.name: x.action for x in other.collect().leftovers if x.kind == "container"}


def test_containers_of_the_dead_go_and_those_of_the_living_stay(desk: Desk, engine: DockerEngine, make: Make) -> None:
    living = LiveController(desk.home / "repositories" / "presence")
    dead = [make(run=f"run-{uuid.uuid4().hex}"), make(run=f"run-{uuid.uuid4().hex}", task=desk.task.id, running=True)]
    waited_for = make(run=f"run-{living.new_id()}", task=desk.task.id)
    assert collected(desk) == dict.fromkeys(dead, LeftoverAction.REMOVED)
    assert waited_for in names(engine)
    assert not set(dead) & names(engine)
    living.end()
    assert collected(desk) == {waited_for: LeftoverAction.REMOVED}


def test_a_tasks_container_goes_when_it_has_ended_or_its_task_has(desk: Desk, engine: DockerEngine, make: Make) -> None:
    other = desk.workbench.create_task(desk.repo_id)
    waiting = make(task=desk.task.id, running=True)
    ended = make(task=desk.task.id)
    of_a_closed_task = make(task=other.id, running=True)
    of_no_task = make(task=f"task-{uuid.uuid4()}", running=True)
    desk.workbench.close_task(other.id)
    left = [name for name in (ended, of_a_closed_task, of_no_task) if name in names(engine)]
    assert collected(desk) == dict.fromkeys(left, LeftoverAction.REMOVED)
    assert waiting in names(engine)
    assert not {ended, of_a_closed_task, of_no_task} & names(engine)


def test_p12_containers_of_another_home_are_never_touched(desk: Desk, engine: DockerEngine, make: Make) -> None:
    foreign = make(instance=uuid.uuid4().hex[:16], run=f"run-{uuid.uuid4().hex}", task=desk.task.id)
    assert collected(desk) == {}
    assert foreign in names(engine)


def test_p12_containers_of_the_home_that_this_one_is_a_copy_of_stay(
    desk: Desk, engine: DockerEngine, make: Make, tmp_path: Path
) -> None:
    """A copied home has the other's instance, and knows nothing of who is alive there."""
    original = tmp_path / "original"
    original.mkdir()
    (original / "instance").write_text((desk.home / "instance").read_text())
    theirs = [make(home=original, run=f"run-{uuid.uuid4().hex}"), make(home=original, task=f"task-{uuid.uuid4()}")]
    assert collected(desk) == dict.fromkeys(theirs, LeftoverAction.KEPT)
    assert set(theirs) <= names(engine)


def test_what_has_our_label_and_says_nothing_more_is_named(desk: Desk, engine: DockerEngine, make: Make) -> None:
    unknown = make()
    assert collected(desk) == {unknown: LeftoverAction.KEPT}
    assert unknown in names(engine)


def test_a_guest_that_the_engine_could_not_end_keeps_its_room(desk: Desk) -> None:
    """It is tried once, by whom it is noted for. Control: with the note gone its room goes as any other."""
    guest, run_id = uuid.uuid4().hex, f"run-{uuid.uuid4().hex}"
    room = desk.home / "repositories" / "rooms" / run_id
    room.mkdir()
    ward = QuarantineNotes(desk.home / "quarantine")
    ward.add(f"sandbox-{run_id}", guest, "a test")
    reconciler = Reconciler(desk.workbench._services)
    reconciler.run_finder(find_dead_rooms)
    assert [x.action for x in reconciler.done] == [LeftoverAction.KEPT]
    ward.remove(f"sandbox-{run_id}")
    reconciler.run_finder(find_dead_rooms)
    assert [x.action for x in reconciler.done] == [LeftoverAction.KEPT, LeftoverAction.REMOVED]
    assert not room.exists()


def test_a_dry_run_removes_nothing(desk: Desk, engine: DockerEngine, make: Make) -> None:
    dead = make(run=f"run-{uuid.uuid4().hex}")
    assert [x.name for x in desk.workbench.collect(dry_run=True).leftovers] == [dead]
    assert dead in names(engine)


def test_without_an_engine_rooms_stay_and_the_rest_is_done(desk: Desk) -> None:
    """A guest may be at work in a room as long as nobody can ask the engine. Control: with the engine it goes."""
    room = desk.home / "repositories" / "rooms" / f"run-{uuid.uuid4().hex}"
    room.mkdir()
    (desk.home / ".x.0123456789ab.tmp").touch()
    settings = {"engine": {"host": f"unix://{desk.home}/nobody.sock"}}
    with Workbench(desk.home, environ={}, settings=settings) as other:
        found = sorted((x.kind, x.action) for x in other.collect().leftovers)
    assert found == [
        ("container", LeftoverAction.FAILED),
        ("room", LeftoverAction.KEPT),
        ("temporary file", LeftoverAction.REMOVED),
    ]
    assert room.is_dir()
    collected(desk)
    assert not room.exists()
