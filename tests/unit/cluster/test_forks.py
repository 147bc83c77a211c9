"""The id of a fork, and a fork that the hub does not have."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

from sandbox.cluster.dispatcher import complete_operation, name_fork
from sandbox.cluster.operation_table import parse_arguments
from sandbox.cluster.task_queues import ARGUMENT_BYTES
from sandbox.cluster.task_updates import dump_operation
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import TASK_ID_PATTERN
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from tests.unit.conftest import refused

TASK = f"task-{uuid4()}"
HUB = "https://git.example.org/team/hub.git"


def fork(key: str, **arguments: Any) -> TaskOperation:
    return TaskOperation(id=key, task_id=TASK, epoch=3, name=OperationName.FORK, arguments=arguments)


def test_the_id_of_a_fork_follows_from_its_operation_unless_one_is_given() -> None:
    drawn = name_fork(fork("one"))
    assert re.fullmatch(TASK_ID_PATTERN, drawn)
    assert name_fork(fork("one", prompt="other")) == drawn
    assert name_fork(fork("two")) != drawn
    assert name_fork(fork("one", fork_id=TASK)) == TASK
    assert complete_operation(fork("one")).arguments == {"fork_id": drawn}


def test_only_a_fork_gets_the_id_of_a_new_task() -> None:
    other = TaskOperation(id="one", task_id=TASK, name=OperationName.SNAPSHOT)
    assert complete_operation(other) == other


def test_a_text_that_is_no_id_of_a_task_is_none_of_a_fork() -> None:
    with refused(ErrorCode.INVALID_INPUT):
        parse_arguments(fork("one", fork_id="../../registry"))


def test_arguments_that_the_server_would_refuse_are_refused_before() -> None:
    """Control: smaller ones are sent as they are."""
    small = TaskOperation(id="one", task_id=TASK, name=OperationName.SEARCH, arguments={"pattern": "x"})
    assert dump_operation(small)["arguments"] == {"pattern": "x"}
    large = {"patches": {"a": "x" * ARGUMENT_BYTES}}
    with refused(ErrorCode.QUOTA_EXCEEDED):
        dump_operation(TaskOperation(id="one", task_id=TASK, name=OperationName.EXPLORE, arguments=large))


@pytest.mark.parametrize("is_here", [False, True])
def test_a_task_that_another_worker_has_is_not_explored_from_an_older_state(is_here: bool) -> None:
    bench = MagicMock(instance_id="0" * 16)
    bench.answer_once.side_effect = lambda _, perform: perform()
    bench.has_latest_state.return_value = is_here
    bench.explore.return_value = None
    bench.send_task_state.return_value = "0" * 40
    other = f"task-{uuid4()}"
    asked = TaskOperation(id="one", task_id=TASK, name=OperationName.EXPLORE, arguments={"task_ids": [other]})
    answer = ClusterWorker(bench, HUB).perform(asked)
    bench.has_latest_state.assert_called_once_with(HUB, other)
    assert bench.explore.called is is_here
    assert (answer.error.reason if answer.error else None) == (None if is_here else "on_another_worker")


CREATE = TaskOperation(id="create", task_id=TASK, epoch=3, name=OperationName.CREATE, arguments={"url": HUB})


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("asked", [complete_operation(fork("one")), CREATE], ids=["fork", "create"])
def test_a_new_task_that_the_hub_does_not_have_is_deleted(asked: TaskOperation, *, is_down: bool) -> None:
    made = name_fork(asked) if asked.name is OperationName.FORK else TASK
    bench = MagicMock(instance_id="0" * 16)
    bench.answer_once.side_effect = lambda _, perform: perform()
    bench.fork_named_task.return_value = bench.create_named_task.return_value = None
    bench.find_done_operation.return_value = None
    bench.send_task_state.return_value = "0" * 40
    if is_down:
        bench.send_task_state.side_effect = SandboxError(ErrorCode.NETWORK_ERROR, "host is down")
    answer: OperationAnswer = ClusterWorker(bench, HUB).perform(asked)
    assert bench.send_task_state.call_args.args[:3] == (HUB, made, 3)
    assert (answer.error is not None, answer.state is None, bench.close_task.called) == (is_down,) * 3
    if answer.error is not None:
        bench.close_task.assert_called_once_with(made, delete_worktree=True, discard=True)
        assert made in answer.error.brief
        assert "the hub" in answer.error.brief
        assert "host is down" in answer.error.brief
