"""Read what a worker answers. Workers run untrusted code, so each answer is read as hostile."""

from __future__ import annotations

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationAnswer, Placement, TaskOperation
from sandbox.text import one_line

_LOST_CHARS = 500


def read_answer(document: object, operation: TaskOperation) -> OperationAnswer:
    """The answer to an operation. What it says of a loss is cut to one short line.

    Raises: `internal` for what is no answer, or one to another operation.
    """
    try:
        answer = OperationAnswer.model_validate(document, extra="ignore")
    except ValidationError as error:
        raise unreadable_answer_error("a worker", describe_errors(error)) from error
    if (answer.task_id, answer.operation_id) != (operation.task_id, operation.id):
        raise unreadable_answer_error(answer.worker, f"It is about {answer.operation_id} of {answer.task_id}.")
    return answer if answer.lost is None else answer.model_copy(update={"lost": one_line(answer.lost)[:_LOST_CHARS]})


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
    return found.model_copy(update={"loss": one_line(found.loss)[:_LOST_CHARS]})


def unreadable_answer_error(worker: str, details: str) -> SandboxError:
    """`worker`: its id, or what is known of it."""
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The answer of {worker} cannot be read",
        details=details,
        hint="Use the same version of space-sandbox on all hosts of a cluster.",
    )
