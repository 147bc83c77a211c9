"""What public methods return can be sent to another process, as `multiprocessing` sends it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.agent.outputs import ListedTask, Tasks, VerifyResult
from sandbox.models import Exploration, SearchQuery, Verdict, Verification
from sandbox.workbench import ExploreOptions, VerifyOptions
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run


@pytest.mark.parametrize(
    "copied",
    [lambda found: pickle.loads(pickle.dumps(found)), copy.deepcopy],  # noqa: S301 - our own bytes
    ids=["pickle", "deepcopy"],
)
def test_a_result_arrives_as_it_was_sent(
    upstream: Upstream, tmp_path: Path, copied: Callable[[object], object]
) -> None:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench as workbench:
        desk.write("f", b"changed\n")
        task, run = desk.task, made_run("test", Verdict.FAILED)
        found = [
            task,
            workbench.repository(desk.repo_id),
            workbench.status(task.id),
            workbench.diff(task.id),
            workbench.read_file(task.id, "f"),
            workbench.search(task.id, SearchQuery(pattern="changed")),
            workbench.impact(task.id),
            workbench.snapshot(task.id, "label"),
            workbench.commit(task.id, "message"),
            workbench.profiles(),
            workbench.checks(desk.repo_id),
            workbench.settings,
            workbench.log(task.id),
            workbench.export_changes(task.id),
            workbench.policy(),
            workbench.events(),
            run,
            Verification(verified=False, tree="a" * 40, commit="b" * 40, runs=(run,)),
            Exploration(task_id=task.id, base_tree="a" * 40, base_failing=0, ways=()),
            VerifyResult(run_id=run.run_id, state="finished", verified=True),
            Tasks(tasks=(ListedTask(**dict(task)),)),
            VerifyOptions(),
            ExploreOptions(expected_hashes={"f": "0" * 64}),
        ]
    for one in found:
        assert copied(one) == one
