"""An approval of an exploration is bound to the files of all tasks that it compares, and its question lists them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.workbench import ExploreOptions, Watch
from sandbox.workbench.checks import explore
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

EXPLORE = "space_repo_explore"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def test_an_approved_exploration_covers_no_later_edit_of_another_task(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same call, while no file has changed."""
    workbench, other = desk.workbench, desk.workbench.fork_task(desk.task.id).id
    workbench.write_file(other, "shown.txt", "x\n", None)
    arguments = {"task_id": desk.task.id, "task_ids": [other]}
    call = workbench.approval_call(EXPLORE, arguments)
    asked = workbench.request_approval(call)
    assert any(line.startswith(f"compares {other}: tree ") for line in asked.question)
    assert any(line.endswith("shown.txt") for line in asked.question)
    workbench.answer_approval(asked.id, approved=True, by="a person")
    assert workbench.find_approval(workbench.approval_call(EXPLORE, arguments)), "control"
    request, reached = explore.ExploreRequest({}, (other,), ExploreOptions()), list[str]()

    def verify_all(*_: object) -> None:
        reached.append("verify")
        raise KeyError

    monkeypatch.setattr(explore, "order_checks", lambda *_: ())  # the repository has no checks
    monkeypatch.setattr(explore, "_verify_all", verify_all)
    with pytest.raises(KeyError):
        explore.explore(workbench._services, desk.task.id, request, Watch(), call.state)
    assert reached == ["verify"], "control: the approved state is that of now"
    workbench.write_file(other, "evil.sh", "x\n", None)
    assert not workbench.find_approval(workbench.approval_call(EXPLORE, arguments))
    with refused(ErrorCode.CONFLICT):
        explore.explore(workbench._services, desk.task.id, request, Watch(), call.state)
    assert reached == ["verify"]
