"""Which runs and snapshots of a cluster's tasks a home remembers: a worker names them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Task
from sandbox.store.home import Home, write_json
from sandbox.store.placed_tasks import (
    MOST_NOTED,
    PlacedRun,
    find_placed_run,
    find_placed_task,
    find_task_of_run,
    find_task_of_snapshot,
    forget_placed_task,
    list_placed_tasks,
    note_runs,
    note_snapshots,
    save_placed_run,
    save_placed_task,
)
from tests.unit.cluster.test_cluster_workbench import RECORD
from tests.unit.conftest import refused

TASK, OTHER = f"task-{uuid4()}", f"task-{uuid4()}"


def list_noted(home: Home) -> set[str]:
    return {path.name.partition(".")[0] for path in (home.repositories / "placed" / "seen").iterdir()}


def test_of_what_a_worker_names_the_newest_is_remembered(tmp_path: Path) -> None:
    """Of its own task. Controls: a run, and what another task has, stay."""
    home = Home(tmp_path)
    names = [f"snap-{number:013x}-000000" for number in range(3 * MOST_NOTED)]
    run, kept = "run-00000000", names.pop()
    note_snapshots(home, OTHER, [kept])
    note_runs(home, TASK, [run])
    note_snapshots(home, TASK, [*names[:MOST_NOTED], kept, "../../registry"])
    note_snapshots(home, TASK, names)
    assert list_noted(home) == {run, kept, *names[-MOST_NOTED:]}
    note_snapshots(home, TASK, names[-1:])
    assert list_noted(home) == {run, kept, *names[-MOST_NOTED:]}, "it was there"
    assert find_task_of_snapshot(home, names[0]) is None
    assert (find_task_of_snapshot(home, names[-1]), find_task_of_run(home, run)) == (TASK, TASK)
    assert find_task_of_snapshot(home, kept) == OTHER
    forget_placed_task(home, TASK)
    assert list_noted(home) == {kept}


def test_what_an_earlier_version_noted_is_found_and_forgotten(tmp_path: Path) -> None:
    home = Home(tmp_path)
    note_runs(home, OTHER, ["run-11111111"])
    write_json(home.repositories / "placed" / "seen" / "run-00000000.json", {"task_id": TASK})
    note_runs(home, OTHER, ["run-00000000"])
    assert find_task_of_run(home, "run-00000000") == TASK
    forget_placed_task(home, TASK)
    assert list_noted(home) == {"run-11111111"}


DAMAGED = {
    "torn": b'{"schema_version": 1, "task"',
    "deep": b'{"schema_version": 1, "task": ' + b"[" * 100_000,
    "no field": b'{"schema_version": 1}',
    "of another type": b'{"schema_version": 1, "task": {"id": 1}, "run_id": [], "task_id": {}}',
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_named_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    home = Home(tmp_path)
    good, bad = (Task.model_validate({**RECORD, "id": task_id}) for task_id in (TASK, OTHER))
    runs = [
        PlacedRun(run_id=f"run-{number:08}", task_id=TASK, operation="verify", started_at=datetime.now(UTC))
        for number in range(2)
    ]
    for task in (good, bad):
        save_placed_task(home, task)
    for run in runs:
        save_placed_run(home, run)
    assert len(list_placed_tasks(home)) == 2, "control"
    folder = home.repositories / "placed"
    note_runs(home, TASK, ["run-77777777"])
    for damaged in (folder / f"{OTHER}.json", folder / "run-00000000.json", folder / "seen" / "run-88888888.json"):
        damaged.write_bytes(DAMAGED[name])
    assert list_placed_tasks(home) == (good,)
    assert f"{OTHER}.json" in caplog.text
    for find in (lambda: find_placed_task(home, OTHER), lambda: find_placed_run(home, "run-00000000")):
        with refused(ErrorCode.INTERNAL) as caught:
            find()
        assert caught.value.details
        assert caught.value.hint
    forget_placed_task(home, TASK)
    assert find_placed_run(home, "run-00000001") is None
    assert "run-77777777" not in list_noted(home)
