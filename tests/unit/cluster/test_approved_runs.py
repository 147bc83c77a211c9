"""Checks, explorations and forks of a cluster's task: its worker compares the state that a person approved (N10).

A dispatcher in this process carries the operations, and the worker has no engine: what it refuses, it refuses before it
asks for one, and what it does not refuse ends with that error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sandbox.agent.tools import TOOLS, Tool, ToolCall
from sandbox.approvals import AgentCall
from sandbox.cluster.asked_operations import AskedOperations
from sandbox.cluster.cluster_workbench import ClusterWorkbench
from sandbox.cluster.dispatcher import LocalDispatcher
from sandbox.cluster.operation_table import OPERATIONS, parse_arguments
from sandbox.cluster.remote_delivery import COMPARED
from sandbox.cluster.worker import ClusterWorker, refuse_operation
from sandbox.engine import connection
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import TaskOptions, TaskStatus
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.store.home import Home
from sandbox.store.placed_tasks import save_placed_task
from sandbox.store.records import find_task, save_repository, save_task
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.approvals.chosen_profile import CREATING
from sandbox.workbench.approvals.question import CLEANING, FORKING, PREPARING, PROMOTING, SENDING
from sandbox.workbench.checks import task_checks
from sandbox.workbench.tasks.approved_state import add_choice, find_choice
from tests.unit.agent.test_approved_states import UNBOUND
from tests.unit.conftest import Upstream, refused

PROFILE = (
    'label = "app"\nimage = "base"\n[[check]]\nid = "build"\nlabel = "b"\nargv = ["true"]\n'
    '[launch]\nargv = ["./app"]\nrequires = ["build"]\n[launch.ready]\nport = 8080\n'
)
RUNS: dict[str, dict[str, object]] = {
    "space_repo_run_check": {"check_id": "build"},
    "space_repo_verify": {},
    "space_repo_candidate": {},
    "space_repo_explore": {
        "patches": {"way": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-shown\n+other\n"},
        "expected_hashes": {"f": "sha256:" + hashlib.sha256(b"shown\n").hexdigest()},
    },
}
ACTING = {**RUNS, FORKING: {}}


class Cluster:
    """The home of an agent, and a worker that has its task."""

    def __init__(self, upstream: Upstream, root: Path, profile: str | None) -> None:
        for name in ("home", "worker"):
            (root / name / "profiles").mkdir(parents=True)
            (root / name).chmod(0o700)
            (root / name / "profiles" / "app.toml").write_text(PROFILE)
        environ = {"PATH": os.environ["PATH"]}
        self.bench = Workbench(root / "worker", environ=environ, allow_file=True)
        repo_id = self.bench.clone(str(upstream.root)).repository.id
        self.bench.set_repository(repo_id, {"profile": "app"} if profile is None else {})
        self.task = self.bench.create_task(repo_id, options=TaskOptions(profile=profile))
        self.write(b"shown\n")
        local = Workbench(root / "home", environ=environ, allow_file=True)
        if profile is not None:  # what it changes is looked at in the home of the agent
            local.clone(str(upstream.root))
        save_placed_task(Home(root / "home"), self.task)
        self.asked = AskedOperations(lambda: LocalDispatcher(ClusterWorker(self.bench)))
        self.workbench = ClusterWorkbench(local, self.asked)

    def write(self, content: bytes) -> None:
        assert self.task.worktree_path is not None
        (self.task.worktree_path / "f").write_bytes(content)

    def change_record(self, **fields: object) -> None:
        home = Home(self.bench.home)
        save_task(home, find_task(home, self.task.id).model_copy(update=fields))

    def set_default_branch(self, name: str) -> None:
        """In the home of the agent."""
        (known,) = self.workbench.repositories()
        save_repository(Home(self.workbench.home), known.model_copy(update={"default_branch": name}))

    def arguments_of(self, tool: Tool) -> Any:
        return tool.input_model.model_validate({"task_id": self.task.id, **ACTING[tool.name]})

    def call_of(self, tool: Tool) -> AgentCall:
        return self.workbench.approval_call(tool.name, self.arguments_of(tool).model_dump(mode="json"))

    def act(self, tool: Tool, state: str | None) -> None:
        """As an agent does after its call was approved; returns when the run has ended."""
        found: Any = tool.call(ToolCall(self.workbench, self.arguments_of(tool), Watch(), state))
        if (run_id := getattr(found, "run_id", None)) is not None:
            self.workbench.wait_run(run_id)


@pytest.fixture
def cluster(
    upstream: Upstream, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    def refuse(*_: object) -> None:
        raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "This host has no engine")

    monkeypatch.setattr(connection, "connect", refuse)
    upstream.write("f", b"older\n")
    upstream.commit()
    upstream.git("branch", "production")
    upstream.write("f", b"old\n")
    upstream.commit()
    made = Cluster(upstream, tmp_path, getattr(request, "param", None))
    with made.bench:
        yield made
        made.asked.close()


CHANGES: dict[str, Callable[[Cluster], None]] = {
    "files": lambda cluster: cluster.write(b"swapped\n"),
    "base branch": lambda cluster: cluster.change_record(base_branch="production"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_n10_a_worker_runs_nothing_on_another_state_than_the_approved_one(cluster: Cluster, change: str) -> None:
    """It changes after the agent made its approved calls."""
    calls = {name: cluster.call_of(TOOLS[name]) for name in ACTING}
    for name, call in calls.items():
        question = cluster.workbench.request_approval(call).question
        assert any('"path": "f"' in line for line in question), name
        assert not any("not_compared" in line for line in question), name
        assert cluster.call_of(TOOLS[name]) == call, "control"
    CHANGES[change](cluster)
    for name, call in calls.items():
        assert cluster.call_of(TOOLS[name]).state != call.state, name
        with pytest.raises(SandboxError) as caught:
            cluster.act(TOOLS[name], call.state)
        brief = caught.value.brief
        assert caught.value.code is ErrorCode.CONFLICT, (name, caught.value)
        assert "was approved" in brief or "was requested" in brief, (name, brief)


def test_n10_a_worker_runs_and_forks_the_state_that_was_approved(cluster: Cluster) -> None:
    """Control of the test before: the state is not refused, and what is missing for a run is an engine."""
    for name in RUNS:
        with refused(ErrorCode.ENGINE_UNAVAILABLE):
            cluster.act(TOOLS[name], cluster.call_of(TOOLS[name]).state)
    cluster.act(TOOLS[FORKING], cluster.call_of(TOOLS[FORKING]).state)
    assert {task.forked_from for task in cluster.bench.tasks()} == {None, cluster.task.id}


def test_n10_a_worker_compares_the_files_of_a_check_again_under_its_lock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change while its images are built. Control: as long as they do not, it runs."""
    tool, is_changed, ran = TOOLS["space_repo_run_check"], False, []

    def prepare(*_: object) -> dict[str, object]:
        if is_changed:
            cluster.write(b"swapped\n")
        return {}

    def run(*_: object) -> tuple[()]:
        ran.append(is_changed)
        return ()

    monkeypatch.setattr(task_checks, "prepare_setups", prepare)
    monkeypatch.setattr(task_checks, "_run_in_task", run)
    call = cluster.call_of(tool)
    cluster.act(tool, call.state)
    is_changed = True
    with refused(ErrorCode.CONFLICT):
        cluster.act(tool, call.state)
    assert ran == [False]


@pytest.mark.parametrize("cluster", ["app"], indirect=True)
def test_n10_a_fork_is_bound_to_the_files_and_to_the_profile_that_it_inherits(cluster: Cluster) -> None:
    """The profile is one of the agent's home, as of the task's base, and the files are those of the worker. Control:
    another default branch changes none of it.
    """
    tool = TOOLS[FORKING]
    call = cluster.call_of(tool)
    choice = find_choice(call.state)
    question = cluster.workbench.request_approval(call).question
    assert any(line.startswith("profile: app instead of ") for line in question)
    assert any(line.endswith(f"as of commit {cluster.task.base_commit[:12]}") for line in question)
    cluster.set_default_branch("production")
    assert cluster.call_of(tool).state == call.state
    cluster.set_default_branch("main")
    other = add_choice(call.state, f"{'0' * 64}{choice[64:]}")
    with refused(ErrorCode.CONFLICT):
        cluster.workbench.request_approval(replace(call, state=other))
    with refused(ErrorCode.CONFLICT):
        cluster.act(tool, other)
    cluster.write(b"swapped\n")
    assert cluster.call_of(tool).state != call.state
    with refused(ErrorCode.CONFLICT):
        cluster.act(tool, call.state)
    cluster.write(b"shown\n")
    cluster.act(tool, call.state)


@pytest.mark.parametrize("cluster", ["app"], indirect=True)
def test_n10_a_worker_creates_no_task_with_other_checks_than_the_approved_ones(cluster: Cluster) -> None:
    """Its profile of that name is another one. Control: it has the profile that was shown."""
    tool, profile = TOOLS[CREATING], cluster.workbench.home / "profiles" / "app.toml"
    (repository,) = cluster.workbench.repositories()
    arguments = tool.input_model.model_validate({"repo_id": repository.id, "prompt": "p", "profile": "app"})

    def create(shown: str) -> None:
        profile.write_text(shown)
        with Workbench(cluster.workbench.home, environ={"PATH": os.environ["PATH"]}, allow_file=True) as asking:
            state = asking.approval_call(tool.name, arguments.model_dump(mode="json")).state
        tool.call(ToolCall(cluster.workbench, arguments, Watch(), state))

    with refused(ErrorCode.CONFLICT):
        create(PROFILE.replace('argv = ["true"]', 'argv = ["true", "other"]'))
    assert [task.status for task in cluster.bench.tasks() if task.id != cluster.task.id] == [TaskStatus.CLOSED]
    create(PROFILE)
    assert [task.profile for task in cluster.bench.tasks() if task.status is TaskStatus.WORKING] == ["app", "app"]


class EarlierWorker(ClusterWorker):
    """One that knows no states of these operations, and refuses what it does not know."""

    def perform(self, operation: TaskOperation, cancelled: Callable[[], bool] = lambda: False) -> OperationAnswer:
        if {"expected_tree", "files"} & operation.arguments.keys():
            error = SandboxError(ErrorCode.INVALID_INPUT, f"The arguments of '{operation.name}' cannot be used")
            return refuse_operation(self.id, operation, error)
        return super().perform(operation, cancelled)


@pytest.mark.parametrize("name", OPERATIONS)
def test_n10_no_worker_ignores_an_argument_that_it_does_not_know(name: OperationName) -> None:
    """So a state that was approved is compared, or the operation is refused."""
    asked = TaskOperation(id="one", task_id=f"task-{uuid4()}", name=name, arguments={"of_a_newer_version": "x"})
    with refused(ErrorCode.INVALID_INPUT) as caught:
        parse_arguments(asked)
    assert "of_a_newer_version" in caught.value.details


@pytest.mark.parametrize("cluster", [None, "app"], indirect=True, ids=["no choice", "choice"])
def test_n10_a_question_says_that_an_earlier_worker_does_not_compare(cluster: Cluster) -> None:
    """What is approved then names no files, and is carried out as before. A state is never left out: it is refused."""
    states = {name: cluster.call_of(TOOLS[name]).state for name in ACTING}
    cluster.asked._dispatcher = LocalDispatcher(EarlierWorker(cluster.bench))
    for name, state in states.items():
        with refused(ErrorCode.INVALID_INPUT):
            cluster.act(TOOLS[name], state)
        call = cluster.call_of(TOOLS[name])
        assert any("earlier version" in line for line in cluster.workbench.request_approval(call).question)
        with nullcontext() if name == FORKING else refused(ErrorCode.ENGINE_UNAVAILABLE):
            cluster.act(TOOLS[name], call.state or None)


def test_n10_a_fork_of_a_snapshot_is_bound_to_no_files(cluster: Cluster) -> None:
    """They do not change what it continues from."""
    kept = cluster.workbench.snapshot(cluster.task.id)
    tool = TOOLS[FORKING]
    arguments = tool.input_model.model_validate({"task_id": cluster.task.id, "snapshot": kept.id})
    call = cluster.workbench.approval_call(FORKING, arguments.model_dump(mode="json"))
    assert not any("not_compared" in line for line in cluster.workbench.request_approval(call).question)
    cluster.write(b"swapped\n")
    tool.call(ToolCall(cluster.workbench, arguments, Watch(), call.state or None))


@pytest.mark.parametrize("cluster", ["app"], indirect=True)
@pytest.mark.parametrize("name", [FORKING, CREATING])
def test_n10_a_task_from_a_snapshot_of_a_worker_has_the_checks_that_were_approved(cluster: Cluster, name: str) -> None:
    kept = cluster.workbench.snapshot(cluster.task.id)
    given = {"task_id": cluster.task.id, "snapshot": kept.id}
    if name == CREATING:
        given = {"repo_id": cluster.task.repo_id, "prompt": "p", "from_snapshot": kept.id, "profile": "app"}
    arguments = TOOLS[name].input_model.model_validate(given)
    call = cluster.workbench.approval_call(name, arguments.model_dump(mode="json"))
    question = cluster.workbench.request_approval(call).question
    assert any(line.endswith(f"as of commit {cluster.task.base_commit[:12]}") for line in question)
    choice = find_choice(call.state) if name == FORKING else call.state
    other = f"{'0' * 64}{choice[64:]}"
    with refused(ErrorCode.CONFLICT):
        wrong = add_choice("", other) if name == FORKING else other
        TOOLS[name].call(ToolCall(cluster.workbench, arguments, Watch(), wrong))
    TOOLS[name].call(ToolCall(cluster.workbench, arguments, Watch(), call.state))


class WorkerWithoutBases(ClusterWorker):
    """One of an earlier version, which does not say what a snapshot is based on."""

    def perform(self, operation: TaskOperation, cancelled: Callable[[], bool] = lambda: False) -> OperationAnswer:
        if operation.name is OperationName.CLEAN_STATE and "snapshot" in operation.arguments:
            error = SandboxError(ErrorCode.INVALID_INPUT, f"The arguments of '{operation.name}' cannot be used")
            return refuse_operation(self.id, operation, error)
        return super().perform(operation, cancelled)


@pytest.mark.parametrize("cluster", ["app"], indirect=True)
@pytest.mark.parametrize("name", [FORKING, CREATING])
def test_n10_a_snapshot_from_before_a_sync_is_asked_about_at_its_own_base(
    cluster: Cluster, upstream: Upstream, name: str
) -> None:
    """Its worker compares there; the base of the task has another usual profile by then. Control: a worker that does
    not say what the base is carries out nothing that was not approved.
    """
    kept, before = cluster.workbench.snapshot(cluster.task.id), cluster.task.base_commit
    upstream.write("pyproject.toml", b'[project]\nname = "app"\nversion = "1"\n')
    upstream.commit()
    synced = cluster.workbench.sync_task(cluster.task.id, fetch=True)
    assert synced.base_commit != before, "void"
    cluster.workbench.update_repository(cluster.task.repo_id)
    given = {"task_id": cluster.task.id, "snapshot": kept.id}
    if name == CREATING:
        given = {"repo_id": cluster.task.repo_id, "prompt": "p", "from_snapshot": kept.id, "profile": "app"}
    arguments = TOOLS[name].input_model.model_validate(given)

    def ask() -> AgentCall:
        return cluster.workbench.approval_call(name, arguments.model_dump(mode="json"))

    call = ask()
    question = cluster.workbench.request_approval(call).question
    assert any(line.endswith(f"as of commit {before[:12]}") for line in question)
    TOOLS[name].call(ToolCall(cluster.workbench, arguments, Watch(), call.state))
    (made,) = (task for task in cluster.bench.tasks() if task.id != cluster.task.id)
    assert (made.base_commit, made.profile) == (before, "app")
    cluster.asked._dispatcher = LocalDispatcher(WorkerWithoutBases(cluster.bench))
    with refused(ErrorCode.CONFLICT) as caught:
        TOOLS[name].call(ToolCall(cluster.workbench, arguments, Watch(), ask().state))
    assert "fetched" not in caught.value.details


@pytest.mark.parametrize("said", [{"base": "pull/1/head"}, {"base": "a" * 12}, "a" * 40, None])
def test_n10_a_worker_can_name_a_whole_commit_only_as_the_base_of_a_snapshot(cluster: Cluster, said: object) -> None:
    """Control: what it says of a snapshot that it has."""

    class Liar(ClusterWorker):
        def perform(self, operation: TaskOperation, cancelled: Callable[[], bool] = lambda: False) -> OperationAnswer:
            return super().perform(operation, cancelled).model_copy(update={"value": said})

    kept = cluster.workbench.snapshot(cluster.task.id)
    assert cluster.workbench.snapshot_base(cluster.task.id, kept.id) == cluster.task.base_commit
    cluster.asked._dispatcher = LocalDispatcher(Liar(cluster.bench))
    with refused(ErrorCode.INTERNAL):
        cluster.workbench.snapshot_base(cluster.task.id, kept.id)


def test_n10_each_tool_that_is_bound_on_one_host_is_bound_on_a_cluster() -> None:
    """Or its state is another one: of a commit, which is sent or whose packages are fetched, or of a clean."""
    assert TOOLS.keys() - UNBOUND.keys() - COMPARED == {*SENDING, PREPARING, CLEANING, PROMOTING}
    assert not COMPARED & UNBOUND.keys()


@pytest.mark.parametrize("waits", [False, True])
def test_n10_a_program_gives_a_state_whether_it_waits_or_not(cluster: Cluster, *, waits: bool) -> None:
    """Control: in `test_n10_a_worker_runs_and_forks_the_state_that_was_approved` one of now is not refused."""
    bench, task, other = cluster.workbench, cluster.task.id, "0" * 40
    begin: dict[str, Callable[[], Any]] = {
        "check": lambda: bench.start_checks(task, ["build"], expected_tree=other),
        "verify": lambda: bench.start_verify(task, expected_tree=other),
        "candidate": lambda: bench.start_candidate(task, expected_tree=other),
        "explore": lambda: bench.start_exploration(task, {"way": b""}, expected_tree=other),
    }
    wait: dict[str, Callable[[], Any]] = {
        "check": lambda: bench.run_checks(task, ["build"], expected_tree=other),
        "verify": lambda: bench.verify(task, expected_tree=other),
        "candidate": lambda: bench.candidate(task, expected_tree=other),
        "explore": lambda: bench.explore(task, {"way": b""}, expected_tree=other),
    }
    for name in begin:
        with refused(ErrorCode.CONFLICT):
            _ = wait[name]() if waits else bench.wait_run(begin[name]().run_id)


def test_n10_a_repository_has_no_state_that_a_candidate_could_be_bound_to(cluster: Cluster) -> None:
    """Control: without one it is launched, which needs an engine."""
    (repository,) = cluster.bench.repositories()
    with refused(ErrorCode.NOT_FOUND):
        cluster.bench.candidate(repository.id, expected_tree="0" * 40)
    with refused(ErrorCode.ENGINE_UNAVAILABLE):
        cluster.bench.candidate(repository.id)
