"""Read what a worker answers. Workers run untrusted code, so each answer is read as hostile."""

from __future__ import annotations

import re

from pydantic import ValidationError

from sandbox.cluster.task_queues import LOSS
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, Placement, TaskOperation

_WORKER = "worker-[0-9a-f]{16}"
_LOSS = re.compile(re.escape(LOSS).replace(r"\{worker\}", _WORKER).replace(r"\{successor\}", _WORKER))
_OTHER_LOSS = (
    "Its last worker was lost with what an operation in progress had changed; the task goes on from its last completed "
    "operation."
)


def read_answer(document: object, operation: TaskOperation) -> OperationAnswer:
    """The answer to an operation. What it says of a loss is in our words, as agents read it.

    Raises: `internal` for what is no answer, or one to another operation.
    """
    try:
        answer = OperationAnswer.model_validate(document, extra="ignore")
    except ValidationError as error:
        raise unreadable_answer_error("a worker", describe_errors(error)) from error
    if (answer.task_id, answer.operation_id) != (operation.task_id, operation.id):
        raise unreadable_answer_error(answer.worker, f"It is about {answer.operation_id} of {answer.task_id}.")
    return answer if answer.lost is None else answer.model_copy(update={"lost": _describe_loss(answer.lost)})


def read_placement(document: object) -> Placement:
    """Where a task is, from what a worker says of it, as `read_answer`. A loss without its time is none.

    Raises: `internal`.
    """
    try:
        found = Placement.model_validate(document)
    except ValidationError as error:
        raise unreadable_answer_error("a worker", describe_errors(error)) from error
    if found.loss is None or found.lost_at is None:
        return found.model_copy(update={"loss": None, "lost_at": None})
    return found.model_copy(update={"loss": _describe_loss(found.loss)})


def _describe_loss(said: str) -> str:
    """What a workflow says; any worker may have made it say something else, for which there are general words."""
    return said if _LOSS.fullmatch(said) else _OTHER_LOSS


def unreadable_answer_error(worker: str, details: str) -> SandboxError:
    """`worker`: its id, or what is known of it."""
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The answer of {worker} cannot be read",
        details=details,
        hint="Use the same version of space-sandbox on all hosts of a cluster.",
    )
