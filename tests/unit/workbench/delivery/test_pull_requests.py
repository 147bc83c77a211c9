"""What a second opening of a pull request looks up, and how often."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from devtools.copied_clones import copied_clones
from sandbox import remotes
from sandbox.approvals import AgentCall
from sandbox.credentials import Credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project, Proposal, PullWithText
from sandbox.forges.table import ForgeRow
from sandbox.models import Host, PullRequest, PullState, Task, TaskOptions
from sandbox.store.home import Home
from sandbox.store.records import save_repository, save_task
from sandbox.workbench import Workbench
from sandbox.workbench.approvals.permissions import permission_by_approval
from sandbox.workbench.checks import gate
from sandbox.workbench.delivery import pull_requests, push, ready_requests
from tests.unit.conftest import Upstream, refused
from tests.unit.store.test_verdicts import made as run_made

PUSH, OPEN_PR = "space_repo_push", "space_repo_open_pr"


@dataclass
class CountedForge:
    """A forge in memory. `verified`: what the stand-in for the gate's verdicts says; each look is counted."""

    counts: Counter[str] = field(default_factory=Counter)
    verified: bool = False
    pull: PullWithText | None = None

    def connect(self, *_: object) -> CountedForge:
        self.counts["connection"] += 1
        return self

    def close(self) -> None:
        """It has no connections."""

    def find(self, _head: str) -> PullWithText | None:
        self.counts["pull request"] += 1
        return self.pull

    def list_open(self, head: str) -> list[PullRequest]:
        found = self.find(head)
        return [found.pull] if found and found.pull.state is PullState.OPEN else []

    def open(self, proposal: Proposal) -> PullWithText:
        pull = PullRequest(
            url="https://github.com/o/r/pull/1", number=1, state=PullState.OPEN, draft=proposal.draft,
            head=proposal.head, base=proposal.base, head_commit="0" * 40, created=True,
        )  # fmt: skip
        self.pull = PullWithText(pull.model_copy(update={"created": False}), proposal.title, proposal.body)
        return replace(self.pull, pull=pull)

    def replace_body(self, _number: int, body: str) -> None:
        assert self.pull is not None
        self.pull = replace(self.pull, body=body)

    def make_ready(self, _number: int) -> None:
        assert self.pull is not None
        self.pull = replace(self.pull, pull=self.pull.pull.model_copy(update={"draft": False}))

    def find_project(self, *_: object) -> Project:
        self.counts["token"] += 1
        credential = Credential(host="github.com", secret=SecretStr("ghp_Zk3mQ9xW7vB1nR5tY8uE2pL6"))
        return Project("github.com", "o/r", "https://api.github.com", "https://github.com", credential)

    def find_verdicts(self, *_: object) -> gate.TreeVerdicts:
        self.counts["gate"] += 1
        return gate.TreeVerdicts({"build": run_made() if self.verified else None})


@dataclass(frozen=True)
class Bench:
    """A task with one commit, of a repository whose remote is a directory and whose forge is in memory."""

    forge: CountedForge
    home: Path
    task: Task
    upstream: Upstream

    def workbench(self, require: str = "pr-ready") -> Workbench:
        return Workbench(self.home, environ=ENVIRON, allow_file=True, settings={"gate": {"require": require}})

    def commit(self, name: str) -> str:
        with self.workbench() as workbench:
            workbench.write_file(self.task.id, name, name.encode(), None)
            return workbench.commit(self.task.id, name).commit


ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.devnull}


@pytest.fixture
def bench(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    forge, parse = CountedForge(), remotes.parse_remote

    def parse_remote(text: str, **rules: Any) -> remotes.Remote:
        return replace(parse(text, **rules), host=Host.GITHUB)

    monkeypatch.setattr(remotes, "parse_remote", parse_remote)
    for module in (ready_requests, pull_requests):
        monkeypatch.setattr(module, "find_project", forge.find_project)
    monkeypatch.setattr(ForgeRow, "connect", forge.connect)
    monkeypatch.setattr(gate, "find_tree_verdicts", forge.find_verdicts)
    upstream.write("f", b"one\n")
    upstream.commit()
    with Workbench(tmp_path / "home", environ=ENVIRON, allow_file=True) as workbench:
        with copied_clones():
            repo_id = workbench.clone(str(upstream.root)).repository.id
        task = workbench.create_task(repo_id)
        made = Bench(forge, tmp_path / "home", task, upstream)
        made.commit("first")
        yield made
        workbench.close_task(task.id, delete_worktree=True, discard=True)


@pytest.mark.parametrize(
    ("require", "verified", "draft", "looks"),
    [
        pytest.param("none", False, True, {"gate": 1, "pull request": 2}, id="no gate"),
        pytest.param("pr-ready", False, True, {"gate": 2, "pull request": 2}, id="unverified draft"),
        pytest.param("pr-ready", True, False, {"gate": 3, "pull request": 2}, id="verified, made ready"),
        pytest.param("push", True, True, {"gate": 3, "pull request": 2}, id="verified, every step is guarded"),
    ],
)
def test_a_second_opening_looks_once_and_again_only_where_the_answer_may_have_changed(
    bench: Bench, require: str, verified: bool, draft: bool, looks: dict[str, int]
) -> None:
    """The gate: for the texts, and under the lock right before the push, and after it if the request itself needs a
    verified tree. The pull request: before the push, as it may have another base or be ready, and after it.
    """
    with bench.workbench("none") as workbench:
        assert workbench.open_pull_request(bench.task.id).created
    head = bench.commit("second")
    bench.forge.counts.clear()
    bench.forge.verified = verified
    with bench.workbench(require) as workbench:
        pull = workbench.open_pull_request(bench.task.id, draft=draft)
    assert (pull.created, pull.draft) == (False, draft)
    assert bench.upstream.oid(bench.task.branch) == head
    assert bench.forge.counts == {"token": 1, "connection": 1, **looks}


def test_a_gate_that_closes_after_the_first_look_stops_the_push(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control for the second look: the verdicts that the texts show are not those that the push relies on."""
    found = iter([True, False])

    def find_verdicts(*_: object) -> gate.TreeVerdicts:
        return gate.TreeVerdicts({"build": run_made() if next(found) else None})

    monkeypatch.setattr(gate, "find_tree_verdicts", find_verdicts)
    with bench.workbench("push") as workbench, refused(ErrorCode.GATE_CLOSED):
        workbench.open_pull_request(bench.task.id)
    assert list(found) == []
    assert bench.upstream.git("for-each-ref", f"refs/heads/{bench.task.branch}") == b""


@pytest.mark.parametrize("exists", [False, True], ids=["new", "a draft before"])
def test_a_gate_that_closes_while_the_commit_is_pushed_makes_nothing_ready(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    """A later run of the check failed. Control: with the verdicts as they were it is ready."""
    send = push.push_with_page

    def push_slowly(*arguments: Any, **options: Any) -> Any:
        sent = send(*arguments, **options)
        bench.forge.verified = False
        return sent

    if exists:
        with bench.workbench("none") as workbench:
            workbench.open_pull_request(bench.task.id)
        bench.commit("second")
    with bench.workbench() as workbench:
        bench.forge.verified = True
        with monkeypatch.context() as patched, refused(ErrorCode.GATE_CLOSED) as caught:
            patched.setattr(push, "push_with_page", push_slowly)
            workbench.open_pull_request(bench.task.id, draft=False)
        assert bench.upstream.oid(bench.task.branch) == workbench.task(bench.task.id).head_commit
        assert "The branch was pushed" in caught.value.hint
        assert bench.forge.pull is None or bench.forge.pull.pull.draft
        bench.forge.verified = True
        assert not workbench.open_pull_request(bench.task.id, draft=False).draft, "control"


def test_what_is_ready_by_now_gets_no_unverified_tree(bench: Bench) -> None:
    with bench.workbench() as workbench:
        sent = workbench.open_pull_request(bench.task.id)
        bench.forge.make_ready(sent.number)
        before = bench.upstream.oid(bench.task.branch)
        bench.commit("second")
        with refused(ErrorCode.GATE_CLOSED):
            workbench.open_pull_request(bench.task.id)
        with refused(ErrorCode.GATE_CLOSED):
            workbench.push(bench.task.id)
    assert bench.upstream.oid(bench.task.branch) == before


@pytest.mark.parametrize("changed", [{}, {"state": PullState.CLOSED}, {"head_commit": "1" * 40}, {"base": "other"}])
def test_s225_a_request_that_was_opened_is_answered_while_it_is_as_it_was_opened(
    bench: Bench, changed: dict[str, Any]
) -> None:
    """The answer was lost, and the call comes again: the forge is asked, and changed no more."""
    with bench.workbench() as workbench:
        given = {"task_id": bench.task.id, "title": "T", "body": None, "draft": True}
        call = workbench.approval_call(OPEN_PR, given)
        asked = workbench.request_approval(call)
        workbench.answer_approval(asked.id, approved=True, by="a person")
        assert workbench.find_done_call(call) is None
        permitted = take(workbench, call)
        assert workbench.find_done_call(call) is None, "taken, and not carried out"
        permitted.open_pull_request(bench.task.id, "T", expected_commit=call.state)
        opened = bench.forge.pull
        assert opened is not None
        now = {"head_commit": workbench.task(bench.task.id).head_commit, **changed}
        bench.forge.pull = replace(opened, pull=opened.pull.model_copy(update=now))
        done = workbench.find_done_call(call)
        assert (done is not None) == (not changed)
        if done is not None:
            assert (done.approval.id, done.result.note[:26]) == (asked.id, "This call was carried out ")
        assert pull_requests.find_open_request(workbench._services, workbench.task(bench.task.id), draft=False) is None


def take(workbench: Workbench, call: AgentCall) -> Workbench:
    taken = workbench.take_approval(call)
    assert taken is not None
    return workbench.acting(workbench.caller, permission_by_approval(taken))


def test_s225_a_call_that_pushed_and_failed_at_the_body_is_asked_about(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pull request is open with the commit, but with its old text. Control: once approved again, it is finished."""
    given = {"task_id": bench.task.id, "title": "T", "body": "new", "draft": True}
    with bench.workbench() as workbench:
        workbench.open_pull_request(bench.task.id, "T", "old")
        head, opened = bench.commit("second"), bench.forge.pull
        assert opened is not None
        bench.forge.pull = replace(opened, pull=opened.pull.model_copy(update={"head_commit": head}))
        call = workbench.approval_call(OPEN_PR, given)
        for refuses in (True, False):
            asked = workbench.request_approval(call)
            workbench.answer_approval(asked.id, approved=True, by="a person")
            permitted = take(workbench, call)
            with monkeypatch.context() as patch, pytest.raises(SandboxError) if refuses else nullcontext():
                if refuses:
                    patch.setattr(bench.forge, "replace_body", refuse)
                permitted.open_pull_request(bench.task.id, "T", "new", expected_commit=call.state)
            assert bench.upstream.oid(bench.task.branch) == head
            assert (workbench.find_done_call(call) is None) == refuses
        done = workbench.find_done_call(call)
        assert done is not None
        assert done.approval.id == asked.id


def refuse(*_: object) -> None:
    raise SandboxError(ErrorCode.FORGE_ERROR, "The forge does not answer")


def begin_at_a_request(bench: Bench, workbench: Workbench) -> str:
    """A task with a commit of its own that began as at a pull request: at a commit on no branch of the remote, so that
    `production`, an old branch, has nothing that it lacks.
    """
    bench.upstream.git("branch", "production")
    bench.upstream.write("f", b"two\n")
    bench.upstream.commit()
    workbench.update_repository(bench.task.repo_id)
    options = TaskOptions(workspace_kind="tree")
    theirs = workbench.create_task(bench.task.repo_id, "of a stranger", options=options)
    workbench.write_file(theirs.id, "g", "of a stranger\n", None)
    request = workbench.commit(theirs.id, "theirs").commit
    task = workbench.create_task(bench.task.repo_id, "ours", request, options=options)
    save_task(Home(bench.home), task.model_copy(update={"base_branch": "main"}))  # as `find_start` says of a request
    workbench.write_file(task.id, "h", "mine\n", None)
    workbench.commit(task.id, "mine")
    return task.id


def test_s192_an_approved_pull_request_goes_into_no_other_branch(bench: Bench) -> None:
    """A sync onto the old branch moves the base of the task, and neither a file nor the commit."""
    with bench.workbench("none") as workbench:
        task_id = begin_at_a_request(bench, workbench)
        ask = {"task_id": task_id, "title": "T", "body": None, "draft": True}
        call = workbench.approval_call(OPEN_PR, ask)
        asked = workbench.request_approval(call)
        assert "pull request: into main" in asked.question
        workbench.answer_approval(asked.id, approved=True, by="a person")
        before = workbench.task(task_id)
        workbench.sync_task(task_id, "production")
        moved = workbench.task(task_id)
        assert (moved.head_commit, moved.base_branch) == (before.head_commit, "production"), "the attack"
        assert not workbench.use_approval(workbench.approval_call(OPEN_PR, ask))
        for send in (workbench.open_pull_request, workbench.push):
            with refused(ErrorCode.CONFLICT) as caught:
                send(task_id, expected_commit=call.state)
            assert "base_branch: approved 'main', now 'production'" in caught.value.details
        assert bench.forge.pull is None
        save_task(Home(bench.home), before)
        assert workbench.use_approval(workbench.approval_call(OPEN_PR, ask)), "the control: the base that was approved"
        assert workbench.open_pull_request(task_id, "T", expected_commit=call.state).base == "main"


@pytest.mark.parametrize("step", ["push_with_page", "connect_forge"])
def test_s192_a_base_that_is_moved_during_the_call_gets_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Control: without the sync the same call opens a pull request."""
    with bench.workbench("none") as workbench:
        task_id = begin_at_a_request(bench, workbench)
        state = workbench.approval_call(OPEN_PR, {"task_id": task_id, "title": "T"}).state
        owner = push if step == "push_with_page" else pull_requests
        real, before = getattr(owner, step), workbench.task(task_id)

        def sync_first(*arguments: Any, **options: Any) -> Any:
            workbench.sync_task(task_id, "production")
            return real(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(owner, step, sync_first)
            with refused(ErrorCode.CONFLICT) as caught:
                workbench.open_pull_request(task_id, "T", expected_commit=state)
        assert "base_branch" in caught.value.brief
        assert bench.forge.pull is None
        save_task(Home(bench.home), before)
        assert workbench.open_pull_request(task_id, "T", expected_commit=state).base == "main"


def test_s192_what_the_question_says_of_the_verdicts_and_the_remote_is_approved_with_it(bench: Bench) -> None:
    """Control: with both as they were the call is the approved one."""
    with bench.workbench("none") as workbench:
        bench.forge.verified = True
        call = workbench.approval_call(PUSH, {"task_id": bench.task.id})
        asked = workbench.request_approval(call)
        workbench.answer_approval(asked.id, approved=True, by="a person")
        bench.forge.verified = False
        assert not workbench.use_approval(workbench.approval_call(PUSH, {"task_id": bench.task.id}))
        with refused(ErrorCode.CONFLICT):
            workbench.push(bench.task.id, expected_commit=call.state)
        bench.forge.verified = True
        home, repository = Home(bench.home), workbench.repository(bench.task.repo_id)
        save_repository(home, repository.model_copy(update={"remote_url": "https://github.com/o/other"}))
        with refused(ErrorCode.CONFLICT):
            workbench.push(bench.task.id, expected_commit=call.state)
        save_repository(home, repository)
        assert workbench.use_approval(workbench.approval_call(PUSH, {"task_id": bench.task.id}))
        workbench.push(bench.task.id, expected_commit=call.state)


def test_a_pull_request_with_another_base_than_the_task_gets_nothing(bench: Bench) -> None:
    """A sync onto another branch is local: the base on the forge is a person's to change, and is asked for again."""
    bench.upstream.git("branch", "release")
    with bench.workbench("none") as workbench:
        sent = workbench.open_pull_request(bench.task.id)
        bench.upstream.git("checkout", "-q", "release")
        bench.upstream.write("g", b"two\n")
        bench.upstream.commit()
        synced = workbench.sync_task(bench.task.id, "release", fetch=True)
        assert f"{sent.url} still goes into main: change its base to release" in synced.note
        before = bench.upstream.oid(bench.task.branch)
        with refused(ErrorCode.CONFLICT) as caught:
            workbench.open_pull_request(bench.task.id)
        assert "goes into main" in caught.value.brief
        with refused(ErrorCode.CONFLICT):
            workbench.push(bench.task.id)
        assert bench.upstream.oid(bench.task.branch) == before
        assert bench.forge.pull is not None
        changed = bench.forge.pull.pull.model_copy(update={"base": "release"})
        bench.forge.pull = replace(bench.forge.pull, pull=changed)
        workbench.open_pull_request(bench.task.id)
        assert bench.upstream.oid(bench.task.branch) != before
        assert workbench.task(bench.task.id).pr_base == "release"


def test_the_head_that_the_forge_names_is_recorded_also_of_a_closed_task(bench: Bench) -> None:
    """It says which commits need no copy here."""
    with bench.workbench("none") as workbench:
        workbench.open_pull_request(bench.task.id)
        assert bench.forge.pull is not None
        opened = bench.forge.pull.pull
        assert workbench.task(bench.task.id).pr_head == opened.head_commit
        workbench.close_task(bench.task.id, delete_worktree=False)
        merged = opened.model_copy(update={"state": PullState.MERGED, "head_commit": "1" * 40})
        for url, head in (("https://github.com/o/r/pull/2", opened.head_commit), (opened.url, merged.head_commit)):
            found = merged.model_copy(update={"url": url})
            pull_requests._update_task(workbench._services, workbench.task(bench.task.id), found)
            assert workbench.task(bench.task.id).pr_head == head


def test_a_base_that_was_renamed_on_the_remote_is_named_as_such(bench: Bench) -> None:
    """Control: a task that starts at a commit has no branch that a request could go into."""
    with bench.workbench("none") as workbench:
        base = workbench.task(bench.task.id).base_commit
        bench.upstream.git("branch", "-m", "main", "trunk")
        workbench.clone(str(bench.upstream.root))
        with refused(ErrorCode.NOT_FOUND) as caught:
            workbench.open_pull_request(bench.task.id)
        assert "has no branch 'main' any more" in caught.value.brief
        assert "--onto trunk" in caught.value.hint
        save_task(Home(bench.home), workbench.task(bench.task.id).model_copy(update={"base_branch": base}))
        with refused(ErrorCode.INVALID_INPUT) as caught:
            workbench.open_pull_request(bench.task.id)
        assert f"starts at {base}" in caught.value.brief


def test_a_request_that_was_found_in_place_of_an_opened_one_is_handled_as_an_existing_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lost answer, or where another process opened one meanwhile: it may go elsewhere, or be a draft."""
    open_one = bench.forge.open

    def recover(proposal: Proposal) -> PullWithText:
        found = open_one(replace(proposal, draft=True, base=base))
        return replace(found, pull=found.pull.model_copy(update={"created": False}))

    monkeypatch.setattr(bench.forge, "open", recover)
    with bench.workbench("none") as workbench:
        base = "release"
        with refused(ErrorCode.CONFLICT) as caught:
            workbench.open_pull_request(bench.task.id, draft=False)
        assert "base is release" in caught.value.brief
        assert workbench.task(bench.task.id).pr_url is None
        bench.forge.pull, base = None, "main"
        pull = workbench.open_pull_request(bench.task.id, draft=False)
        assert (pull.draft, pull.created) == (False, False)
        assert bench.forge.pull is not None
        assert not bench.forge.pull.pull.draft
