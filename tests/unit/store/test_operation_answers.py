"""Recorded answers of operations: what is damaged is an error of ours, and the operation is not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

from sandbox.errors import ErrorCode
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.store.home import Home, write_json
from sandbox.store.operation_answers import answer_once
from tests.unit.conftest import refused

OPERATION = TaskOperation(id="one", task_id=f"task-{uuid4()}", name=OperationName.STATUS)
ASKED = OPERATION.model_dump(mode="json")


def make_answer() -> OperationAnswer:
    return OperationAnswer(operation_id="one", task_id=OPERATION.task_id, epoch=1, worker="worker-" + 16 * "0", value=1)


@pytest.mark.parametrize(
    "record",
    [{}, {"operation": ASKED}, {"answer": None}, {"operation": ASKED, "answer": 7}, {"operation": ASKED, "answer": {}}],
    ids=["empty", "no answer", "no operation", "a number", "an empty answer"],
)
def test_a_damaged_record_is_named_and_its_operation_is_not_repeated(tmp_path: Path, record: dict[str, Any]) -> None:
    """Control: the record as it was written."""
    home, perform = Home(tmp_path / "home"), MagicMock(return_value=make_answer())
    home.prepare()
    assert answer_once(home, OPERATION, perform) == answer_once(home, OPERATION, perform) == make_answer()
    path = home.repositories / "operations" / OPERATION.task_id / "1" / "one.json"
    write_json(path, {"schema_version": 1, **record})
    with refused(ErrorCode.INTERNAL) as caught:
        answer_once(home, OPERATION, perform)
    assert str(path) in caught.value.details
    assert "another operation id" in caught.value.hint
    assert perform.call_count == 1
