"""An operation that was carried out, although its answer was lost: what the hub says of it, and what is answered then.

Theory. A worker may be killed after the state that an operation made has reached the hub, and before it has answered.
The task goes on elsewhere from that state, and the operation is asked for again there. It would meet its own result:
an edit would find another content than it expects. So the state records which operation made it, and its answer.

Only answers about files and commits are recorded: with write access to the hub those can be changed anyway. Verdicts
are not, so checks run again, which changes no file. Snapshots stay with the host that was lost, so a new one is taken.
"""

from __future__ import annotations

import json

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.models.operations import DoneOperation, OperationAnswer, OperationName, TaskOperation
from sandbox.store.operation_answers import other_operation_error

MAX_BYTES = 256 * 1024
"""Of a recorded answer. The message that holds it is read as a whole."""

_ANSWERED_FROM_HUB = frozenset(
    {
        OperationName.EDIT_FILE,
        OperationName.WRITE_FILE,
        OperationName.APPLY_PATCH,
        OperationName.DELETE_FILE,
        OperationName.RENAME_FILE,
        OperationName.RESTORE,
        OperationName.CLEAN,
        OperationName.SYNC,
        OperationName.CHECKOUT,
        OperationName.COMMIT,
        OperationName.CLOSE,
    }
)
_NOT_REPEATABLE = frozenset({OperationName.EXPLORE})
"""It gives the task other files, and its answer has verdicts."""

_RECORDED = _ANSWERED_FROM_HUB | _NOT_REPEATABLE


def describe_done(worker: str, operation: TaskOperation, value: object) -> DoneOperation | None:
    """What the hub records of an operation. `value`: its answer, as JSON values. None: it may be carried out again."""
    if operation.name not in _RECORDED:
        return None
    done = DoneOperation(
        operation_id=operation.id, digest=digest_operation(operation), epoch=operation.epoch, worker=worker
    )
    recorded = done.model_copy(update={"has_answer": True, "value": value})
    is_small = operation.name in _ANSWERED_FROM_HUB and len(recorded.model_dump_json().encode()) <= MAX_BYTES
    return recorded if is_small else done


def answer_done(done: DoneOperation | None, operation: TaskOperation) -> OperationAnswer | None:
    """The answer of an operation that made the state which its task goes on from; None if another one made it.

    Raises: `conflict` for another operation of the same id; `internal` (`reason`: `operation_interrupted`) if its
    answer is not recorded.
    """
    if done is None or done.operation_id != operation.id or operation.name not in _RECORDED:
        return None
    if done.digest != digest_operation(operation):
        raise other_operation_error(operation)
    if operation.name not in _ANSWERED_FROM_HUB or not done.has_answer:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"Operation {operation.id} ({operation.name}) was carried out, and its answer was lost with {done.worker}",
            hint="Look at the task's status and diff: they have what it did.",
            reason="operation_interrupted",
        )
    return OperationAnswer(
        operation_id=operation.id,
        task_id=operation.task_id,
        epoch=operation.epoch,
        worker=done.worker,
        value=done.value,
    )


def digest_operation(operation: TaskOperation) -> str:
    """Of its name and arguments."""
    asked = json.dumps([operation.name.value, dict(operation.arguments)], sort_keys=True)
    return sha256_of(asked.encode())
