"""Answers of operations that were asked for from elsewhere: each is carried out once, and then answered from here.

Theory. An operation has a file named by task, epoch and id. It is created before the operation begins and has the
answer after it ended. A file without an answer belongs to an operation that is in progress, or that ended with its
controller: that one is not repeated, because it may have changed the task. The task's lock tells the two apart.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, TaskOperation
from sandbox.private_folders import make_private
from sandbox.store.home import Home, read_json, write_json
from sandbox.store.lockfile import remove_abandoned

WAIT_S = 24 * 3600.0
"""How long a repeated question waits for the operation that is in progress."""


def answer_once(home: Home, operation: TaskOperation, perform: Callable[[], OperationAnswer]) -> OperationAnswer:
    """The recorded answer of an operation, or that of `perform`, which is called at most once for it.

    Raises: `conflict` for another operation of the same id; `internal` (`reason`: `operation_interrupted`) if the
    controller that carried it out was killed; `internal` for a damaged record.
    """
    path = _path(home, operation)
    asked = operation.model_dump(mode="json")
    with hold_operations(home, operation.task_id, WAIT_S):
        known = read_json(path)
        if known is None:
            make_private(path.parent)
            write_json(path, {"schema_version": 1, "operation": asked, "answer": None})
            answer = perform()
            write_json(path, {"schema_version": 1, "operation": asked, "answer": answer.model_dump(mode="json")})
            return answer
    if "operation" not in known or "answer" not in known:
        raise _damaged_answer_error(operation, f"{path}: it lacks a field")
    if known["operation"] != asked:
        raise other_operation_error(operation)
    if known["answer"] is None:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"Operation {operation.id} ({operation.name}) was interrupted, and is not repeated",
            details="The controller that carried it out was killed before it could record an answer.",
            hint="Look at the task's status, then ask again with another operation id.",
            reason="operation_interrupted",
        )
    try:
        return OperationAnswer.model_validate(known["answer"])
    except ValidationError as error:
        raise _damaged_answer_error(operation, f"{path}: {describe_errors(error)}") from error


def _damaged_answer_error(operation: TaskOperation, details: str) -> SandboxError:
    """Whether the operation was carried out is not known then, so it is not repeated."""
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The recorded answer of operation {operation.id} ({operation.name}) is damaged",
        details=details,
        hint="Look at the task's status, then ask again with another operation id.",
    )


def other_operation_error(operation: TaskOperation) -> SandboxError:
    """An operation has the id of an earlier one, and another name or other arguments."""
    return SandboxError(
        ErrorCode.CONFLICT,
        f"Operation {operation.id} of {operation.task_id} was another one",
        hint="Give each operation an id of its own.",
    )


@contextmanager
def hold_operations(home: Home, task_id: str, wait_s: float) -> Iterator[None]:
    """Let no operation on a task begin in the body.

    Raises: `conflict` if one stays in progress for `wait_s` seconds.
    """
    with home.locked(_lock(task_id), timeout_s=wait_s):
        yield


def list_epochs_asked(home: Home, task_id: str) -> set[int]:
    """The epochs for which a change of the task was asked for here."""
    folder = _folder(home, task_id)
    return {int(path.name) for path in folder.iterdir() if path.name.isdecimal()} if folder.is_dir() else set()


def list_asked_tasks(home: Home) -> list[str]:
    """The tasks of which operations were asked for here, also those that this home does not have any more."""
    folder = home.repositories / "operations"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def age_of_answers_s(home: Home, task_id: str) -> float:
    """How long ago the last answer of a task was recorded."""
    folder = _folder(home, task_id)
    return time.time() - max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))


def forget_answers(home: Home, task_id: str, older_than_s: float = 0.0) -> bool:
    """Delete the answers of a task that no caller asks about any more. False: the last one is not that old.

    Raises: `conflict` while an operation on the task is in progress.
    """
    if not _folder(home, task_id).is_dir():
        return False
    with hold_operations(home, task_id, 0.0):
        if age_of_answers_s(home, task_id) < older_than_s:
            return False
        shutil.rmtree(_folder(home, task_id))
    remove_abandoned(home.lock_path(_lock(task_id)))
    return True


def _lock(task_id: str) -> str:
    return f"operation-{task_id}"


def _folder(home: Home, task_id: str) -> Path:
    return home.repositories / "operations" / task_id


def _path(home: Home, operation: TaskOperation) -> Path:
    return _folder(home, operation.task_id) / str(operation.epoch) / f"{operation.id}.json"
