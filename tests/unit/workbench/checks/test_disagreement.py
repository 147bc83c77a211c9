"""Which runs of a task are compared with those of clean rooms."""

from __future__ import annotations

from pathlib import Path

from sandbox.models import Verdict
from sandbox.store.records import save_run
from sandbox.workbench.checks.disagreement import explain_disagreements
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.store.test_verdicts import made


def test_a_run_of_a_part_is_no_evidence_about_the_whole(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        services = desk.workbench._services
        tree = desk.git("rev-parse", f"{desk.task.base_commit}^{{tree}}").strip()
        part = made(Verdict.FAILED, 4, task_id=desk.task.id, tree=tree, clean_room=False, arguments=("tests/x",))
        room = made(task_id=desk.task.id, tree=tree)
        services.home.logs(desk.task.id).mkdir(parents=True, exist_ok=True)
        save_run(services.home, desk.task.id, part)
        assert explain_disagreements(services, desk.task, [room]) == ()
        whole = part.model_copy(update={"run_id": "run-2", "arguments": ()})
        save_run(services.home, desk.task.id, whole)
        assert "failed in the task" in explain_disagreements(services, desk.task, [room])[0], "the control"
