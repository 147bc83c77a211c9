"""Read what a worker answers. Workers run untrusted code, so each answer is read as hostile."""

from __future__ import annotations

import base64
import json
import re

from pydantic import ValidationError

from sandbox.cluster.task_queues import ANOTHER_WORKER, LOSS
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import LogLines, RunLog
from sandbox.models.operations import OperationAnswer, Placement, TaskOperation
from sandbox.text import neutralise, one_line

_WORKER = "worker-[0-9a-f]{16}"
_LOSS = re.compile(
    re.escape(LOSS).replace(r"\{worker\}", _WORKER).replace(r"\{successor\}", f"(?:{_WORKER}|{ANOTHER_WORKER})")
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_OTHER_LOSS = (
    "Its last worker was lost with what an operation in progress had changed; the task goes on from its last completed "
    "operation."
)


def read_answer(document: object, operation: TaskOperation) -> OperationAnswer:
    """The answer to an operation. What it says of a loss is in our words, as agents read it. Half of a surrogate pair
    in its texts is U+FFFD.

    Raises: `internal` for what is no answer, or one to another operation.
    """
    try:
        answer = OperationAnswer.model_validate(_without_surrogates(document), extra="ignore")
    except ValidationError as error:
        raise unreadable_answer_error("a worker", describe_errors(error)) from error
    if (answer.task_id, answer.operation_id) != (operation.task_id, operation.id):
        raise unreadable_answer_error(answer.worker, f"It is about {answer.operation_id} of {answer.task_id}.")
    return answer if answer.lost is None else answer.model_copy(update={"lost": _describe_loss(answer.lost)})


def _without_surrogates(document: object) -> object:
    """JSON can have half of a surrogate pair, which UTF-8 cannot. Raises: `internal` for what is nested too deep."""
    try:
        text = json.dumps(document, ensure_ascii=False)
    except RecursionError as error:
        raise unreadable_answer_error("a worker", "It is nested too deep.") from error
    return json.loads(_SURROGATES.sub("\ufffd", text)) if _SURROGATES.search(text) else document


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


def make_log_safe(found: object) -> object:
    """A value that a worker answered; the text of a log is neutralised again, for a worker may not have (S194).

    Raises: `internal` for bytes of a log that are no base64.
    """
    if isinstance(found, LogLines):
        matches = found.matches and tuple(one.model_copy(update={"text": one_line(one.text)}) for one in found.matches)
        content = found.content and neutralise(found.content)
        return found.model_copy(update={"matches": matches, "content": content})
    if not isinstance(found, RunLog):
        return found
    if found.encoding == "utf-8":
        return found.model_copy(update={"content": neutralise(found.content)})
    try:
        base64.b64decode(found.content, validate=True)
    except ValueError as error:
        raise unreadable_answer_error("a worker", f"The log is no base64: {error}.") from error
    return found


def check_encoding(found: RunLog, *, raw: bool) -> RunLog:
    """The log as it was asked for: exact bytes would be written to a terminal. Raises: `internal` for the other one."""
    wanted = "base64" if raw else "utf-8"
    if found.encoding != wanted:
        raise unreadable_answer_error("a worker", f"The log was asked for as {wanted}, and came as {found.encoding}.")
    return found


def unreadable_answer_error(worker: str, details: str) -> SandboxError:
    """`worker`: its id, or what is known of it."""
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The answer of {worker} cannot be read",
        details=details,
        hint="Use the same version of space-sandbox on all hosts of a cluster.",
    )
