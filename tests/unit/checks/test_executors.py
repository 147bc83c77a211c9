"""The containers that checks leave and those that they do not, with an engine that is not Docker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sandbox.checks.execute import CheckDirectories, Executor, GuestSettings, Recorder
from sandbox.checks.executors import FreshContainer, TaskContainer
from sandbox.engine.container_labels import INSTANCE_LABEL, TASK_LABEL, task_container_name
from sandbox.engine.create_options import AccountFiles, GuestAccount, Supervisor
from sandbox.engine.protocol import GuestRunner
from sandbox.models import Check, CheckRun, Verdict
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.engine.test_create_options import POLICY
from tests.unit.memory_engine import MemoryEngine

INSTANCE = "0123456789abcdef"
TASK = f"task-{uuid.UUID(int=7)}"
NAME = task_container_name(INSTANCE, TASK)
CHECK = Check(id="c", label="c", argv=("make", "test"))


@pytest.fixture
def engine(tmp_path: Path) -> MemoryEngine:
    return MemoryEngine(QuarantineNotes(tmp_path / "quarantine"))


@pytest.fixture
def guest(engine: MemoryEngine, tmp_path: Path) -> GuestSettings:
    for name in ("workspace", "report"):
        (tmp_path / name).mkdir()
    image = engine.add_image("base").digest
    files = tmp_path / "mask", tmp_path / "hosts"
    return GuestSettings(image, "runc", *files, INSTANCE, (0, 1), Supervisor(tmp_path / "init", 600))


def run(executor: Executor, guest: GuestSettings, folder: Path) -> CheckRun:
    account = GuestAccount((1000, 1000), AccountFiles(folder / "passwd", folder / "group"))
    directories = CheckDirectories(folder / "workspace", folder / "report", account, "0" * 40, False, TASK)
    return Recorder(executor, guest, folder / "logs").run(f"run-{uuid.uuid4().hex}", CHECK, directories)


@pytest.mark.parametrize("keep", [True, False])
def test_a_tasks_container_is_kept_when_the_settings_say_so(
    engine: MemoryEngine, guest: GuestSettings, tmp_path: Path, keep: bool
) -> None:
    runner: GuestRunner = engine
    done = run(TaskContainer(runner, POLICY, guest, TASK, keep), guest, tmp_path)
    assert (done.verdict, done.stdout_tail) == (Verdict.PASSED, "make test")
    left = engine.list_containers({INSTANCE_LABEL: INSTANCE, TASK_LABEL: TASK})
    assert [c.name for c in left] == ([NAME] if keep else [])


def test_a_fresh_container_is_removed(engine: MemoryEngine, guest: GuestSettings, tmp_path: Path) -> None:
    assert run(FreshContainer(engine, POLICY, guest), guest, tmp_path).verdict is Verdict.PASSED
    assert engine.containers == {}


def test_the_name_of_a_container_in_quarantine_is_not_used_again(
    engine: MemoryEngine, guest: GuestSettings, tmp_path: Path
) -> None:
    engine.hung.add(engine.add_container(NAME, {INSTANCE_LABEL: INSTANCE}))
    engine.remove_container(NAME)
    run(TaskContainer(engine, POLICY, guest, TASK), guest, tmp_path)
    assert [c.name for c in engine.list_containers({})] == [f"{NAME}-2"]
