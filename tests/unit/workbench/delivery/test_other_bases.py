"""THREATS S235: the gate judges the task's base, and the pull request goes into another branch.

The control of each attack: the same push or opening goes through once the base is the task's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import PullWithText
from sandbox.models import PullRequest, PullState
from sandbox.workbench.delivery import ready_requests
from tests.unit.conftest import refused
from tests.unit.workbench.delivery.test_pull_requests import Bench, bench

__all__ = ["bench"]

OPEN_PR = "space_repo_open_pr"


def of_another_person(bench: Bench, base: str) -> None:
    """Another person has a ready pull request for the task's branch; the task's record does not know it."""
    pull = PullRequest(
        url="https://github.com/o/r/pull/7", number=7, state=PullState.OPEN, draft=False, head=bench.task.branch,
        base=base, head_commit="0" * 40,
    )  # fmt: skip
    bench.forge.pull = PullWithText(pull, "Theirs", "")


def retarget(bench: Bench, base: str) -> None:
    assert bench.forge.pull is not None
    bench.forge.pull = replace(bench.forge.pull, pull=bench.forge.pull.pull.model_copy(update={"base": base}))


def sync_onto_legacy(bench: Bench) -> None:
    """The task is pushed, and then based on another branch, under which its tree counts as verified."""
    bench.forge.verified = True
    bench.upstream.git("branch", "legacy")
    with bench.workbench() as workbench:
        workbench.push(bench.task.id)
        bench.upstream.git("checkout", "-q", "legacy")
        bench.upstream.write("g", b"two\n")
        bench.upstream.commit()
        bench.upstream.git("checkout", "-q", "main")
        workbench.sync_task(bench.task.id, "legacy", fetch=True)


def test_s235_a_push_reaches_no_request_into_another_branch_than_the_tasks_base(bench: Bench) -> None:
    of_another_person(bench, "main")
    sync_onto_legacy(bench)
    before = bench.upstream.oid(bench.task.branch)
    with bench.workbench() as workbench:
        for step in (workbench.push, workbench.open_pull_request):
            with refused(ErrorCode.CONFLICT) as caught:
                step(bench.task.id)
            assert "goes into main" in caught.value.brief
        assert bench.upstream.oid(bench.task.branch) == before
        retarget(bench, "legacy")
        assert workbench.push(bench.task.id).commit == bench.upstream.oid(bench.task.branch) != before


def test_s235_a_request_that_was_retargeted_since_gets_neither_commits_nor_a_text(bench: Bench) -> None:
    bench.forge.verified = True
    with bench.workbench() as workbench:
        workbench.open_pull_request(bench.task.id, "T", "body", draft=False)
        retarget(bench, "production")
        bench.commit("more")
        before = bench.upstream.oid(bench.task.branch)
        call = workbench.approval_call(OPEN_PR, {"task_id": bench.task.id, "title": "T", "body": "new", "draft": False})
        assert "pull request: into main" in workbench.request_approval(call).question, "void: it is shown as it is"
        for draft in (False, True):
            with refused(ErrorCode.CONFLICT):
                workbench.open_pull_request(bench.task.id, "T", "new", draft=draft)
        with refused(ErrorCode.CONFLICT):
            workbench.push(bench.task.id)
        assert bench.upstream.oid(bench.task.branch) == before
        assert bench.forge.pull is not None
        assert "new" not in bench.forge.pull.body
        retarget(bench, "main")
        assert workbench.open_pull_request(bench.task.id, "T", "new", draft=False).base == "main"


def test_s235_a_request_that_is_retargeted_during_the_push_gets_no_text(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.forge.verified = True
    with bench.workbench() as workbench:
        workbench.open_pull_request(bench.task.id, "T", "body", draft=False)
        bench.commit("more")
        text = bench.forge.pull.body if bench.forge.pull else ""
        listed = bench.forge.list_open

        def list_open(head: str) -> object:
            found = listed(head)
            retarget(bench, "production")
            return found

        with monkeypatch.context() as patched:
            patched.setattr(bench.forge, "list_open", list_open)
            with refused(ErrorCode.CONFLICT):
                workbench.open_pull_request(bench.task.id, "T", "new", draft=False)
        assert bench.forge.pull is not None
        assert bench.forge.pull.body == text


def test_s235_no_answer_about_the_base_closes_the_gate_for_a_base_that_is_not_the_default_branch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_onto_legacy(bench)

    def no_answer(*_: object) -> None:
        raise SandboxError(ErrorCode.AUTH_FAILED, "No answer", hint="Store one.")

    before = bench.upstream.oid(bench.task.branch)
    with monkeypatch.context() as patched:
        patched.setattr(ready_requests, "find_project", no_answer)
        with bench.workbench() as workbench, refused(ErrorCode.GATE_CLOSED) as caught:
            workbench.push(bench.task.id)
        assert (caught.value.reason, caught.value.hint) == (ready_requests.NO_ANSWER, "Store one.")
        assert bench.upstream.oid(bench.task.branch) == before
    with bench.workbench() as workbench:
        assert workbench.push(bench.task.id).commit == bench.upstream.oid(bench.task.branch) != before
