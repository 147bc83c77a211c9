"""How much of a task's operations passes through one step of its workflow. A part of the workflow of a task.

Theory. The server writes all that one step brings in one transaction, and takes it in one message; both have at most
4 MiB. A workflow with more is ended by the server, for good. In one step there may be the answers of all operations in
progress, the arguments of all that were just accepted, and once more those of one that begins. So an operation is
accepted when there is room for it in the worst step. What is refused leaves no trace in the history, and its caller
asks again. But a refusal is sent with the arguments, so callers ask with large ones one after another, and there is
room for one refusal.

As the workflow, this module does not import the rest of the package, and it is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox.cluster.task_queues import ALL_READS, ANSWER_BYTES, ARGUMENT_BYTES, LARGE_BYTES, STOPS, measure_payload

STEP_BYTES = 3840 * 1024 + LARGE_BYTES
"""Of what we send in one step: two answers beside one of a change, a refusal, and small arguments of what begins. The
rest of the server's 4 MiB is for the fields of messages and events.
"""


@dataclass(frozen=True)
class _OperationSize:
    is_reading: bool
    size: int


class OperationAdmission:
    """The operations of a task that were accepted and are not answered. `step`: which one it is, any number that is
    another one in the next step.
    """

    def __init__(self) -> None:
        self._asked: dict[str, _OperationSize] = {}
        self._step, self._sent = -1, 0

    def __contains__(self, operation_id: str) -> bool:
        return operation_id in self._asked

    def takes(self, operation: dict[str, Any], step: int) -> bool:
        """Whether an operation may be accepted now. What stops checks always may."""
        if operation["name"] in STOPS or not self._asked:
            return True
        others, new = [*self._asked.values()], _describe(operation)
        begins = max((one.size for one in (*others, new) if not one.is_reading), default=0)
        now = _count_answers(others) * ANSWER_BYTES + STEP_BYTES - self.count_room(step) + new.size + begins
        later = _count_answers([*others, new]) * ANSWER_BYTES + ARGUMENT_BYTES + begins
        return max(now, later) <= STEP_BYTES

    def accept(self, operation: dict[str, Any], step: int) -> None:
        """Note that an operation was accepted in this step."""
        self._asked[operation["id"]] = found = _describe(operation)
        self._send(found.size, step)

    def answer(self, operation_id: str, answer: dict[str, Any], step: int) -> None:
        """Note that an operation was answered in this step."""
        if operation_id in self._asked:
            del self._asked[operation_id]
            self._send(measure_payload(answer), step)

    def count_room(self, step: int) -> int:
        """How many bytes this step may still send."""
        return STEP_BYTES - (self._sent if step == self._step else 0)

    def _send(self, size: int, step: int) -> None:
        self._sent = size + (self._sent if step == self._step else 0)
        self._step = step


def _describe(operation: dict[str, Any]) -> _OperationSize:
    return _OperationSize(operation["name"] in ALL_READS, measure_payload(operation))


def _count_answers(asked: list[_OperationSize]) -> int:
    """How many of these may be answered in one step: of those that change the task, one has its turn."""
    return sum(one.is_reading for one in asked) + any(not one.is_reading for one in asked)
