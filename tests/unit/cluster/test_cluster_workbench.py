"""What a controller with a cluster says about a task that is not in its home."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from sandbox.agent.results import add_losses
from sandbox.agent.tools import TOOLS, ToolCall
from sandbox.cli.task import _find_waiting
from sandbox.cli.task_rows import describe_places, describe_waiting
from sandbox.cluster import asked_operations
from sandbox.cluster.answers import read_answer, read_placement
from sandbox.cluster.asked_operations import MOST_LOSSES, PLACES_AT_ONCE, AskedOperations, read_value
from sandbox.cluster.cluster_workbench import ClusterWorkbench
from sandbox.cluster.dispatcher import Dispatcher, LocalDispatcher, complete_operation, require_answer_to
from sandbox.cluster.done_operations import digest_operation
from sandbox.cluster.operation_table import ForkArguments
from sandbox.cluster.task_queues import LOSS
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import LogLines, RunLog, SearchQuery, Snapshot, Status, Task, TaskOptions
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.models.workers import PlaceState, TaskPlace
from sandbox.store.home import Home
from sandbox.store.placed_tasks import PlacedRun, note_snapshots, save_placed_run, save_placed_task
from sandbox.store.release_folder import open_releases
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.approvals.question import CLEANING, CREATING, FORKING
from sandbox.workbench.approvals.requests import MOST_PER_SUBJECT
from sandbox.workbench.tasks.lifecycle import compare_task
from tests.unit.conftest import Upstream, refused
from tests.unit.store.test_release_folder import NEW, OLD, promote

ABOUT_TASKS = sorted(
    name
    for name, method in vars(Workbench).items()
    if not name.startswith("_")
    and isinstance(method, FunctionType)
    and [*signature(method).parameters][1:2] in (["task_id"], ["owner_id"])
)
ABOUT_RUNS = sorted(
    name for name, method in vars(Workbench).items()
    if isinstance(method, FunctionType) and [*signature(method).parameters][1:2] == ["run_id"]
)  # fmt: skip
RECORD = {
    "id": f"task-{uuid4()}", "repo_id": "host-o-r", "prompt": "p", "base_branch": "main", "branch": "space-agent/x",
    "base_commit": "a" * 40, "workspace_kind": "worktree", "worktree_path": None, "status": "working",
    "head_commit": "a" * 40, "created_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
GIVEN: dict[str, tuple[object, ...]] = {
    "search": (SearchQuery(glob="*"),),
    "apply_patch": (b"", {}),
    "look_at_runs": ({},),
}
ON_EVERY_HOST = {
    "advice",
    "complete_id",
    "create_named_task",
    "end_task_state",
    "export_changes",
    "find_done_operation",
    "find_local_branch",
    "give_up_unfinished_task",
    "send_task_state",
    "send_unsent_task_state",
}


class ConnectedError(Exception):
    """The cluster is asked."""


def connect() -> Dispatcher:
    raise ConnectedError


def begin(found: object) -> None:
    """An iterator asks when it is used."""
    if isinstance(found, Iterator):
        next(found)


@pytest.mark.parametrize("name", sorted({*ABOUT_TASKS} - ON_EVERY_HOST))
def test_each_method_about_a_task_asks_the_cluster_or_refuses_by_name(name: str, tmp_path: Path) -> None:
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(connect))
    method = getattr(workbench, name)
    wanted = [p for p in signature(method).parameters.values() if p.default is p.empty][1:]
    given = GIVEN.get(name, tuple("x" for p in wanted if p.kind is not p.KEYWORD_ONLY))
    named = {p.name: MagicMock() for p in wanted if p.kind is p.KEYWORD_ONLY}
    with pytest.raises((ConnectedError, SandboxError)) as caught:
        begin(method(f"task-{uuid4()}", *given, **named))
    if isinstance(caught.value, SandboxError):
        assert (caught.value.code, caught.value.reason) == (ErrorCode.INVALID_INPUT, "not_on_cluster")


@pytest.mark.parametrize("name", sorted({*ABOUT_RUNS} - {"share_artifact"}))
def test_each_method_about_a_run_is_carried_out_on_a_cluster(name: str) -> None:
    assert getattr(ClusterWorkbench, name) is not getattr(Workbench, name)


def test_a_run_that_was_seen_is_asked_of_the_worker_of_its_task(tmp_path: Path) -> None:
    asked, task, run = MagicMock(), f"task-{uuid4()}", "run-" + 32 * "0"
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    with refused(ErrorCode.NOT_FOUND):
        workbench.read_log(run)
    asked.ask.return_value = run
    assert workbench.find_run(task) == run
    workbench.read_log(run)
    assert asked.ask.call_args.args[0] == task
    assert asked.ask.call_args.args[2]["run_id"] == run


def test_s149_a_snapshot_that_another_worker_names_too_stays_that_of_its_task(tmp_path: Path) -> None:
    """Control: its own snapshot is taken from that task."""
    asked, home = MagicMock(), Home(tmp_path / "home")
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    first, second = (Task.model_validate({**RECORD, "id": f"task-{uuid4()}"}) for _ in range(2))
    kept, own = (
        Snapshot(id=f"snap-{13 * '0'}-{name}", tree="a" * 40, commit="a" * 40, created_at=datetime.now(UTC))
        for name in ("000000", "111111")
    )
    for task in (first, second):
        save_placed_task(home, task)
    asked.ask.return_value = kept
    workbench.snapshot(first.id)
    asked.ask.return_value = (kept, own)
    workbench.snapshots(second.id)
    for snapshot, origin in ((kept, first), (own, second)):
        asked.finish.side_effect = lambda fork, _kind: first.model_copy(update={"id": fork.arguments["fork_id"]})
        made = workbench.create_task(first.repo_id, from_snapshot=snapshot.id)
        assert asked.finish.call_args.args[0].task_id == origin.id
        assert made.id in {task.id for task in workbench.tasks()}
    asked.ask.return_value = second
    workbench.close_task(second.id)
    with refused(ErrorCode.NOT_FOUND):
        workbench.create_task(first.repo_id, from_snapshot=own.id)


@pytest.mark.parametrize("expected", [None, "0" * 64])
def test_a_task_from_a_snapshot_carries_the_choice_that_was_approved(tmp_path: Path, expected: str | None) -> None:
    """The worker reads it from there, as `fork_named_task` compares it."""
    asked, home = MagicMock(), Home(tmp_path / "home")
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    first, snapshot = Task.model_validate(RECORD), f"snap-{13 * '0'}-000000"
    save_placed_task(home, first)
    note_snapshots(home, first.id, [snapshot])
    asked.finish.side_effect = lambda fork, _kind: first.model_copy(update={"id": fork.arguments["fork_id"]})
    options = TaskOptions(branch="fix", expected_choice=expected)
    workbench.create_task(first.repo_id, from_snapshot=snapshot, options=options)
    fork = asked.finish.call_args.args[0]
    assert ("expected_choice" in fork.arguments["options"]) == (expected is not None)
    sent = TaskOperation.model_validate_json(fork.model_dump_json())
    assert ForkArguments.model_validate(sent.arguments).options == options


@pytest.mark.parametrize("expected", [None, "0" * 40])
def test_a_close_carries_the_state_that_was_approved(tmp_path: Path, expected: str | None) -> None:
    asked = MagicMock()
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    workbench.close_task(f"task-{uuid4()}", discard=True, expected_tree=expected)
    arguments = asked.ask.call_args.args[2]
    assert arguments.get("expected_tree") == expected


def test_the_question_of_a_clean_needs_no_files_and_is_bound_to_the_commit(tmp_path: Path) -> None:
    """There may be too many of them, which is why a clean is asked for. Control: other tools read them."""
    asked, task = MagicMock(), Task.model_validate(RECORD)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    save_placed_task(Home(tmp_path / "home"), task)
    asked.ask.side_effect = SandboxError(ErrorCode.QUOTA_EXCEEDED, "too many files")
    call = workbench.approval_call(CLEANING, {"task_id": task.id, "without": []})
    assert (call.state, call.arguments["uncommitted"]) == (task.head_commit, "too many files")
    assert any("deletes permanently" in line for line in workbench.request_approval(call).question)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        workbench.approval_call("space_repo_restore", {"task_id": task.id, "snapshot": "head"})


def test_s157_the_question_of_a_clean_is_bound_to_what_it_deletes(tmp_path: Path) -> None:
    """As the worker says it. Control: without paths to delete only the commit counts, and it is not asked."""
    asked, task = MagicMock(), Task.model_validate(RECORD)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    save_placed_task(Home(tmp_path / "home"), task)
    said = {OperationName.CLEAN_STATE: f"{task.head_commit} sha256:1"}

    def answer(_task: str, name: OperationName, _arguments: object, _kind: object) -> object:
        if name is OperationName.STATUS:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "too many files")
        return said[name]

    asked.ask.side_effect = answer
    call = workbench.approval_call(CLEANING, {"task_id": task.id, "without": ["build"]})
    assert call.state == said[OperationName.CLEAN_STATE]
    assert workbench.approval_call(CLEANING, {"task_id": task.id, "without": []}).state == task.head_commit
    said[OperationName.CLEAN_STATE] = f"{'0' * 40} sha256:1"
    with refused(ErrorCode.CONFLICT):
        workbench.approval_call(CLEANING, {"task_id": task.id, "without": ["build"]})


def test_s157_a_worker_deletes_only_what_was_there_when_it_was_asked_about(upstream: Upstream, tmp_path: Path) -> None:
    """Controls: the commit alone is no state of these paths, and what was not changed is deleted."""
    upstream.write(".gitignore", b"build\n")
    upstream.commit()
    with Workbench(tmp_path / "worker", environ={"PATH": os.environ["PATH"]}, allow_file=True) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id)
        worker = ClusterWorker(workbench)
        assert task.worktree_path is not None
        (task.worktree_path / "new").write_bytes(b"one")

        def ask(name: OperationName, **arguments: object) -> OperationAnswer:
            arguments["without"] = ["new"]
            asked = TaskOperation(id=uuid4().hex, task_id=task.id, name=name, arguments=arguments)
            return worker.perform(asked)

        state = ask(OperationName.CLEAN_STATE).value
        assert str(state).startswith(f"{task.head_commit} sha256:")
        (task.worktree_path / "new").write_bytes(b"two")
        refusal = ask(OperationName.CLEAN, expected_commit=state).error
        assert refusal is not None
        assert refusal.code == ErrorCode.CONFLICT
        assert (task.worktree_path / "new").read_bytes() == b"two"
        (task.worktree_path / "new").write_bytes(b"one")
        assert ask(OperationName.CLEAN, expected_commit=state).error is None
        assert not (task.worktree_path / "new").exists()


COMPARED: dict[str, dict[str, object]] = {
    "space_repo_commit": {"message": "m"},
    "space_repo_restore": {"snapshot": "head"},
    "space_repo_sync": {"offline": True},
    "space_repo_checkout": {"ref": "main", "offline": True},
    "space_repo_close_task": {"delete_worktree": True, "discard": True},
}


@pytest.mark.parametrize("name", COMPARED)
def test_n10_a_worker_acts_on_the_files_that_were_approved_only(upstream: Upstream, tmp_path: Path, name: str) -> None:
    """They change after the agent made its approved call. Control: with the files as they were it is carried out."""
    upstream.write("old", b"old")
    upstream.commit()
    with Workbench(tmp_path / "worker", environ={"PATH": os.environ["PATH"]}, allow_file=True) as bench:
        task = bench.create_task(bench.clone(str(upstream.root)).repository.id)
        assert task.worktree_path is not None
        (task.worktree_path / "f").write_bytes(b"shown")
        workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), ask_worker(ClusterWorker(bench)))
        save_placed_task(Home(tmp_path / "home"), task)
        tool = TOOLS[name]
        arguments = tool.input_model.model_validate({"task_id": task.id, **COMPARED[name]})
        call = workbench.approval_call(name, arguments.model_dump(mode="json"))
        question = workbench.request_approval(call).question
        assert any('"path": "f"' in line for line in question)
        assert not any("not_compared" in line for line in question)
        (task.worktree_path / "f").write_bytes(b"swapped")
        with refused(ErrorCode.CONFLICT):
            tool.call(ToolCall(workbench, arguments, Watch(), call.state or None))
        (task.worktree_path / "f").write_bytes(b"shown")
        tool.call(ToolCall(workbench, arguments, Watch(), call.state or None))


def ask_worker(worker: ClusterWorker) -> MagicMock:
    """What asks one worker, without a cluster between."""

    def ask(task_id: str, name: OperationName, arguments: dict[str, object], kind: type[object]) -> object:
        operation = TaskOperation(id=uuid4().hex, task_id=task_id, name=name, arguments=arguments)
        return read_value(worker.perform(operation), kind)

    return MagicMock(ask=ask)


def test_n10_what_is_shown_of_a_workers_files_is_of_the_reading_that_is_approved(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files change with each reading: one reading has both, so the files of the state are those that are shown."""
    upstream.write("old", b"old")
    upstream.commit()
    with Workbench(tmp_path / "worker", environ={"PATH": os.environ["PATH"]}, allow_file=True) as bench:
        task = bench.create_task(bench.clone(str(upstream.root)).repository.id)
        root = task.worktree_path
        assert root is not None
        contents = iter((b"first", b"second", b"third"))
        real = compare_task

        @contextmanager
        def write_and_compare(*arguments: Any) -> Iterator[Any]:
            (root / "f").write_bytes(next(contents))
            with real(*arguments) as opened:
                yield opened

        for module in ("approvals.question", "tasks.status"):
            monkeypatch.setattr(f"sandbox.workbench.{module}.compare_task", write_and_compare)
        workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), ask_worker(ClusterWorker(bench)))
        save_placed_task(Home(tmp_path / "home"), task)
        call = workbench.approval_call("space_repo_commit", {"task_id": task.id, "message": "m"})
        (shown,) = call.arguments["uncommitted"]
        assert shown["sha256"] == f"sha256:{hashlib.sha256((root / 'f').read_bytes()).hexdigest()}"
        assert next(contents) == b"second"
        monkeypatch.undo()
        assert call.state
        bench.commit(task.id, "m", expected_tree=call.state)


def test_n10_a_question_says_that_an_earlier_worker_compares_no_files(tmp_path: Path) -> None:
    """It knows the operation for a clean only, or none. Control: any other error is one of the call."""
    asked, task = MagicMock(), Task.model_validate(RECORD)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    save_placed_task(Home(tmp_path / "home"), task)
    refusal = SandboxError(ErrorCode.INVALID_INPUT, "The arguments of 'clean-state' cannot be used")

    def answer(_task: str, name: OperationName, _arguments: object, _kind: object) -> object:
        if name is OperationName.CLEAN_STATE:
            raise refusal
        return MagicMock(head_commit="a" * 40, changes=())

    asked.ask.side_effect = answer
    arguments = {"task_id": task.id, "message": "m"}
    call = workbench.approval_call("space_repo_commit", arguments)
    assert call.state == ""
    assert any("earlier version" in line for line in workbench.request_approval(call).question)
    refusal = SandboxError(ErrorCode.NETWORK_ERROR, "it does not answer")
    with refused(ErrorCode.NETWORK_ERROR):
        workbench.approval_call("space_repo_commit", arguments)


def test_n10_packages_of_a_task_of_the_cluster_are_of_the_commit_that_was_approved(tmp_path: Path) -> None:
    asked, task = MagicMock(), Task.model_validate(RECORD)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    save_placed_task(Home(tmp_path / "home"), task)
    asked.ask.return_value = MagicMock(head_commit="b" * 40, changes=())
    call = workbench.approval_call("space_repo_prepare", {"task_id": task.id, "repo_id": None})
    assert call.state == "b" * 40
    assert any("b" * 40 in line for line in workbench.request_approval(call).question)


def test_releases_of_a_task_are_those_of_its_repository_here(upstream: Upstream, tmp_path: Path) -> None:
    """As `promote --history`, `--confirm` and `--rollback` ask for. Control: a new release of the task is refused."""
    upstream.write("a", b"a\n")
    upstream.commit()
    home = Home(tmp_path / "home")
    with Workbench(home.root, environ={"PATH": os.environ["PATH"]}, allow_file=True) as local:
        repository = local.clone(str(upstream.root)).repository.id
        save_placed_task(home, Task.model_validate({**RECORD, "id": TASK, "repo_id": repository}))
        workbench = ClusterWorkbench(local, AskedOperations(connect))
        with open_releases(home, repository) as releases:
            promote(releases, OLD)
            promote(releases, NEW, confirmed=False)
        assert workbench.releases(TASK) == local.releases(repository)
        assert workbench.releases(TASK).pending is not None
        assert workbench.wait_release(TASK, 0.0).pending is not None
        assert workbench.confirm_release(TASK).pending is None
        assert workbench.roll_back_release(TASK).current == OLD
        with refused(ErrorCode.INVALID_INPUT) as error:
            workbench.promote(TASK)
        assert f"sandbox promote {repository}" in error.value.hint


def test_what_is_no_whole_id_is_looked_for_in_this_home(tmp_path: Path) -> None:
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(connect))
    with refused(ErrorCode.NOT_FOUND):
        workbench.status("task-12345678")


TASK, OTHER = f"task-{uuid4()}", f"task-{uuid4()}"
LOST_AT = "2026-01-01T00:00:00Z"
ASKED = TaskOperation(id="one", task_id=TASK, name=OperationName.STATUS)
SAID = {"operation_id": "one", "task_id": TASK, "epoch": 1, "worker": f"worker-{'1' * 16}"}


@pytest.mark.parametrize(
    "said", [{}, {**SAID, "task_id": OTHER}, {**SAID, "operation_id": "two"}, {**SAID, "worker": "\x1b[2J"}]
)
def test_s141_what_is_no_answer_to_this_operation_is_an_error_of_ours(said: dict[str, object]) -> None:
    assert read_answer(SAID, ASKED).task_id == TASK, "control"
    with refused(ErrorCode.INTERNAL):
        read_answer(said, ASKED)


@pytest.mark.parametrize("name", [OperationName.STATUS, OperationName.FORK])
def test_s244_the_answer_of_another_operation_of_the_same_id_is_none_to_this_one(name: OperationName) -> None:
    """Control: the same operation, and a worker of an earlier version, which does not say which one it was."""
    asked = ASKED.model_copy(update={"name": name})
    for arguments in ({"path": "a"}, {}):
        digest = digest_operation(complete_operation(asked.model_copy(update={"arguments": arguments})))
        answer = read_answer({**SAID, "digest": digest}, asked)
        if not arguments:
            require_answer_to(answer, asked)
            continue
        with refused(ErrorCode.CONFLICT):
            require_answer_to(answer, asked)
    require_answer_to(read_answer(SAID, asked), asked)


def test_s244_one_process_refuses_another_operation_of_the_same_id_too() -> None:
    """Control: the same one is submitted again, and not carried out again."""
    worker = MagicMock()
    with closing(LocalDispatcher(worker)) as dispatcher:
        for _ in range(2):
            dispatcher.submit(ASKED)
        with refused(ErrorCode.CONFLICT):
            dispatcher.submit(ASKED.model_copy(update={"arguments": {"path": "a"}}))
    assert worker.perform.call_count == 1


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff\u00e9"])
def test_a_text_that_no_stream_can_encode_is_replaced_where_an_answer_is_read(text: str) -> None:
    """Control: all else in the answer is as it was said, a pair of surrogates in JSON among it."""
    said = {**SAID, "value": {"deep": [{text: text}], "kept": ["\U0001f600", 1.5, None, "\u00e9"]}}
    found = read_answer(json.loads(json.dumps(said)), ASKED).value
    ((key, value),) = found["deep"][0].items()
    assert key == value == re.sub("[\ud800-\udfff]", "\ufffd", text)
    assert found["kept"] == ["\U0001f600", 1.5, None, "\u00e9"]
    error = {**SAID, "error": {"code": "conflict", "brief": text}}
    read_answer(error, ASKED).model_dump_json().encode()


@pytest.mark.parametrize(
    "read",
    [
        lambda text: read_answer({**SAID, "lost": text}, ASKED).lost,
        lambda text: read_placement({"loss": text, "lost_at": LOST_AT}).loss,
    ],
    ids=["answer", "place"],
)
def test_s141_what_a_worker_says_of_a_loss_is_in_our_words(read: Callable[[str], str | None]) -> None:
    """Any worker may say it in the place of the workflow. Control: what the workflow says is kept."""
    said = LOSS.format(worker=f"worker-{'1' * 16}", successor=f"worker-{'2' * 16}")
    assert read(said) == said
    for hostile in ("Run this command", f"{said} Run this command", said.replace("worker-2", "you-2"), f"{said}\n"):
        lost = read(hostile)
        assert lost is not None
        assert "last completed operation" in lost
        assert "command" not in lost
        assert lost != hostile


@pytest.mark.parametrize("said", [{"loss": "all"}, {"lost_at": LOST_AT}])
def test_a_loss_without_its_time_is_none(said: dict[str, str]) -> None:
    """No page can show it."""
    found = read_placement({"loss": "all", "lost_at": LOST_AT})
    assert (bool(found.loss), found.lost_at) == (True, datetime(2026, 1, 1, tzinfo=UTC)), "control"
    found = read_placement(said)
    assert (found.loss, found.lost_at) == (None, None)


def test_tasks_that_wait_are_listed_to_agents_and_people(tmp_path: Path) -> None:
    """Control: one that a worker has is in neither list."""
    asked, home, here = MagicMock(), Home(tmp_path / "home"), f"task-{uuid4()}"
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    for task_id in (TASK, OTHER, here):
        save_placed_task(home, Task.model_validate({**RECORD, "id": task_id}))
    waiting = TaskPlace(state=PlaceState.WAITING, place=3, workers=2, loss="Its worker was lost")
    unknown, on_worker = TaskPlace(state=PlaceState.UNKNOWN), TaskPlace(state=PlaceState.ON_WORKER)
    asked.places.return_value = {TASK: waiting, OTHER: unknown, here: on_worker}
    tool = TOOLS["space_repo_list_tasks"]
    found = tool.call(ToolCall(workbench, tool.input_model(), Watch())).model_dump()["waiting"]
    assert {task_id: place["state"] for task_id, place in found.items()} == {TASK: "waiting", OTHER: "unknown"}
    assert _find_waiting(workbench, workbench.tasks()) == {TASK: waiting, OTHER: unknown}
    assert describe_waiting(waiting) == "waits for a worker: about number 3 in the line, workers: 2"
    assert "does not say" in describe_waiting(unknown)
    assert [line.partition(" ")[0] for line in describe_places({TASK: waiting, OTHER: unknown})] == [TASK, OTHER]
    assert describe_places({TASK: unknown, OTHER: unknown}) == [
        "2 tasks may wait for a worker: the cluster does not say"
    ]


def test_the_cluster_is_not_asked_about_closed_tasks(tmp_path: Path) -> None:
    """Of them it says no more, for ever."""
    asked, home = MagicMock(), Home(tmp_path / "home")
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    for task_id, status in ((TASK, "merged"), (OTHER, "closed")):
        save_placed_task(home, Task.model_validate({**RECORD, "id": task_id, "status": status}))
    asked.places.return_value = {TASK: TaskPlace(state=PlaceState.ON_WORKER)}
    tool = TOOLS["space_repo_list_tasks"]
    assert len(tool.call(ToolCall(workbench, tool.input_model(), Watch())).model_dump()["tasks"]) == 2
    assert _find_waiting(workbench, workbench.tasks()) == {}
    assert [call.args for call in asked.places.call_args_list] == [([TASK],)] * 2


def test_packages_of_a_repository_are_refused_on_a_cluster_before_a_person_is_asked(
    upstream: Upstream, tmp_path: Path
) -> None:
    """This home runs no checks, so that it would fetch for none. Control: of a task the cluster is asked."""
    upstream.write("f", b"x\n")
    upstream.commit()
    asked = MagicMock()
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}, allow_file=True), asked)
    repo_id = workbench.clone(str(upstream.root)).repository.id
    for call in (
        lambda: workbench.approval_call("space_repo_prepare", {"repo_id": repo_id}),
        lambda: workbench.build_layers(repo_id),
        lambda: workbench.start_layers(repo_id),
    ):
        with pytest.raises(SandboxError) as caught:
            call()
        assert (caught.value.code, caught.value.reason) == (ErrorCode.INVALID_INPUT, "not_on_cluster")
    workbench.build_layers(TASK)
    assert asked.ask.call_args.args[:2] == (TASK, OperationName.LAYERS_BUILD)


def test_n09_a_profile_that_a_task_of_the_cluster_hands_on_is_asked_about(upstream: Upstream, tmp_path: Path) -> None:
    """Control: a task with the repository's profile hands on none, and of a task of another home none is known."""
    upstream.write("f", b"x\n")
    upstream.commit()
    asked, home = MagicMock(), Home(tmp_path / "home")
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    text = 'label = "loose"\nimage = "generic"\n[[check]]\nid = "test"\nlabel = "x"\nargv = ["true"]\n'
    (tmp_path / "home" / "profiles" / "loose.toml").write_text(text)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}, allow_file=True), asked)
    repo_id = workbench.clone(str(upstream.root)).repository.id
    record = {**RECORD, "repo_id": repo_id}
    loose, plain = (
        Task.model_validate({**record, "id": f"task-{uuid4()}", "profile": name}) for name in ("loose", None)
    )
    for task in (loose, plain):
        save_placed_task(home, task)
    kept = f"snap-{13 * '0'}-000000"
    note_snapshots(home, loose.id, [kept])
    status = MagicMock(head_commit="a" * 40, changes=())
    asked.ask.return_value = MagicMock(state="a" * 40, status=status, base="a" * 40)
    assert workbench.inherited_profile(FORKING, {"task_id": plain.id}) is None
    with refused(ErrorCode.INVALID_INPUT):
        workbench.inherited_profile(FORKING, {"task_id": f"task-{uuid4()}"})
    for tool, arguments in (
        (FORKING, {"task_id": loose.id, "snapshot": None}),
        (CREATING, {"repo_id": repo_id, "prompt": "p", "from_snapshot": kept, "profile": None}),
    ):
        assert workbench.inherited_profile(tool, arguments) == "loose"
        call = workbench.approval_call(tool, arguments)
        assert call.state
        question = workbench.request_approval(call).question
        assert any(line.startswith("profile: loose instead of ") for line in question)


def test_while_a_connection_is_made_losses_are_taken_and_few_threads_ask_for_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server from which nothing comes back keeps each of them for seconds. Control: afterwards they are answered."""
    monkeypatch.setattr(asked_operations, "ALL_PLACES_S", 0.05)
    connected, placed = threading.Event(), TaskPlace(state=PlaceState.ON_WORKER)

    def wait() -> Dispatcher:
        assert connected.wait(60)
        return MagicMock(places=lambda task_ids: dict.fromkeys(task_ids, placed))

    asked = AskedOperations(wait)
    for _ in range(2 * PLACES_AT_ONCE):
        assert asked.places([TASK])[TASK].state is PlaceState.UNKNOWN
    threads = [one for one in threading.enumerate() if one.name == "places"]
    taking = threading.Thread(target=asked.take_losses, daemon=True)
    taking.start()
    taking.join(20)
    is_taken = not taking.is_alive()
    connected.set()
    for thread in threads:
        thread.join(20)
    assert (len(threads), is_taken) == (PLACES_AT_ONCE, True)
    monkeypatch.setattr(asked_operations, "ALL_PLACES_S", 20.0)
    assert asked.places([TASK]) == {TASK: placed}


def test_a_loss_is_told_once_to_who_asks_about_its_task(tmp_path: Path) -> None:
    """And those that nobody takes are bounded. Control: every caller got all, and they were kept until then."""
    asked = AskedOperations(connect)
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    save_placed_run(
        Home(tmp_path / "home"),
        PlacedRun(run_id="run-" + 32 * "0", task_id=TASK, operation="check", started_at=datetime.now(UTC)),
    )
    for number in range(2 * MOST_LOSSES):
        said = OperationAnswer.model_validate({**SAID, "operation_id": f"operation-{number}", "lost": "\x1b[2Jall"})
        asked._note_loss(said)
    found = CallToolResult(content=[])
    assert add_losses(found, workbench, {"task_id": OTHER}) == add_losses(found, workbench, None) == found
    told = add_losses(found, workbench, {"run_id": "run-" + 32 * "0"}).content
    assert [one.text for one in told if isinstance(one, TextContent)] == [f"The cluster says of {TASK}: all"] * len(
        told
    )
    assert 0 < len(told) < 10
    assert workbench.take_losses() == ()
    assert len(asked._losses) == MOST_LOSSES


@pytest.mark.parametrize("field", ["created_at", "committed_at", "pushed_at", "closed_at"])
def test_s243_a_time_without_a_zone_in_the_record_of_a_worker_is_not_kept(tmp_path: Path, field: str) -> None:
    """It cannot be compared with the times of other tasks: no list of this home could be sorted any more."""
    dispatcher = MagicMock()
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), AskedOperations(lambda: dispatcher))
    workbench.repository = MagicMock(return_value=MagicMock(remote_url="https://host/o/r"))  # type: ignore[method-assign]

    def create(at: str) -> None:
        def place(_url: str, _arguments: object, task_id: str, _terms: object) -> OperationAnswer:
            said = {**SAID, "task_id": task_id, "value": {**RECORD, "id": task_id, field: at}}
            return OperationAnswer.model_validate(said)

        dispatcher.place = place
        workbench.create_task("host-o-r")

    create(LOST_AT)  # control
    with refused(ErrorCode.INTERNAL):
        create(LOST_AT.removesuffix("Z"))
    assert len(workbench.task_lines()) == 1


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {"lost": 3},
        {"epoch": -1},
        {"requirements": ["gpu"]},
        {"worker": "x"},
        {"loss": "x", "lost_at": LOST_AT.removesuffix("Z")},
    ],
)
def test_s141_what_is_no_place_of_a_task_is_an_error_of_ours(said: object) -> None:
    newer = {"worker": SAID["worker"], "epoch": 2, "lost": ["a"], "of_a_newer_version": True}
    assert read_placement(newer).lost == ["a"], "control"
    with refused(ErrorCode.INTERNAL):
        read_placement(said)


def test_s141_an_error_with_an_unknown_code_is_an_error_of_ours() -> None:
    answer = read_answer({**SAID, "error": {"code": "of_a_newer_version", "brief": "no"}}, ASKED)
    with refused(ErrorCode.INTERNAL):
        read_value(answer, str)


def test_what_only_a_later_version_of_a_worker_says_is_left_out() -> None:
    """Workers are upgraded before callers, and models forbid fields that they do not know."""
    known = {"branch": "b", "head_commit": "a" * 40, "base_commit": "a" * 40, "ahead": 0, "dirty": False, "changes": []}
    later = {**known, "of_a_newer_version": {"x": 1}}
    assert Status.model_validate(known)
    with pytest.raises(ValidationError):
        Status.model_validate(later)  # control
    answer = read_answer({**SAID, "value": later, "of_a_newer_version": True}, ASKED)
    assert read_value(answer, Status).head_commit == "a" * 40
    with refused(ErrorCode.INTERNAL):
        read_value(answer.model_copy(update={"value": {"of_a_newer_version": True}}), Status)


EVIL = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2Jpassed"
LOG = {"run_id": "run-1", "check_id": "t", "stream": "stdout", "total_bytes": 3, "truncated": False}


def test_s194_an_error_of_a_worker_has_no_terminal_sequence() -> None:
    said = {"code": "conflict", "brief": f"{EVIL}\nerror", "details": EVIL, "hint": EVIL}
    with refused(ErrorCode.CONFLICT) as caught:
        read_value(read_answer({**SAID, "error": said}, ASKED), str)
    assert (caught.value.brief, caught.value.details, caught.value.hint) == ("passed\u2424error", "passed", "passed")


def test_s194_nor_has_a_log_of_a_worker() -> None:
    log = read_value(read_answer({**SAID, "value": {**LOG, "content": EVIL, "encoding": "utf-8"}}, ASKED), RunLog)
    assert log.content == "passed"
    lines = {"run_id": "run-1", "stream": "stdout", "total_lines": 1, "total_bytes": 1, "dropped_bytes": 0}
    more = {"matches": [{"line": 1, "text": EVIL, "cut": True}], "truncated": False, "finished": True}
    found = read_value(read_answer({**SAID, "value": {**lines, **more, "content": EVIL}}, ASKED), LogLines)
    assert (found.content, found.matches and found.matches[0].text) == ("passed", "passed")


@pytest.mark.parametrize(("raw", "encoding"), [(False, "base64"), (True, "utf-8")])
def test_s194_a_log_comes_as_it_was_asked_for(tmp_path: Path, encoding: str, *, raw: bool) -> None:
    """Control: the other encoding."""
    asked, task = MagicMock(), f"task-{uuid4()}"
    workbench = ClusterWorkbench(Workbench(tmp_path / "home", environ={}), asked)
    asked.ask.return_value = RunLog.model_validate({**LOG, "content": "AAAA", "encoding": encoding})
    with refused(ErrorCode.INTERNAL):
        workbench.run_log(task, "run-" + 32 * "0", raw=raw)
    assert workbench.run_log(task, "run-" + 32 * "0", raw=not raw).content == "AAAA"


def test_s194_bytes_of_a_log_that_are_no_base64_are_an_error_of_ours() -> None:
    good, bad = ({**SAID, "value": {**LOG, "content": text, "encoding": "base64"}} for text in ("AAAA", "AAA!"))
    assert read_value(read_answer(good, ASKED), RunLog).content == "AAAA"
    with refused(ErrorCode.INTERNAL):
        read_value(read_answer(bad, ASKED), RunLog)


def test_questions_about_one_task_leave_room_for_those_about_another(tmp_path: Path) -> None:
    """Each has the quota of a task of this home. Control: the one with too many is refused."""
    asked, home = MagicMock(), tmp_path / "home"
    asked.ask.return_value = MagicMock(state="a" * 40, status=MagicMock(head_commit="a" * 40, changes=()))
    workbench = ClusterWorkbench(Workbench(home, environ={}), asked)
    first, second = (Task.model_validate({**RECORD, "id": f"task-{uuid4()}"}) for _ in range(2))
    for task in (first, second):
        save_placed_task(Home(home), task)

    def ask(task: Task, number: int) -> None:
        arguments = {"task_id": task.id, "message": f"message {number}"}
        workbench.request_approval(workbench.approval_call("space_repo_commit", arguments))

    for number in range(MOST_PER_SUBJECT):
        ask(first, number)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        ask(first, MOST_PER_SUBJECT)
    ask(second, 0)
