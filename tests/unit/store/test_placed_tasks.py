"""Which runs and snapshots of a cluster's tasks a home remembers: a worker names them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from sandbox.store.home import Home, write_json
from sandbox.store.placed_tasks import (
    MOST_NOTED,
    find_task_of_run,
    find_task_of_snapshot,
    forget_placed_task,
    note_runs,
    note_snapshots,
)

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
