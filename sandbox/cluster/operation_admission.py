"""How much of a task's operations passes through one step of its workflow. A part of the workflow of a task.

Theory. The server writes all that one step brings in one transaction, and takes it in one message; both have at most
4 MiB. A workflow with more is ended by the server, for good. In one step there may be the answers of all operations in
progress, the arguments of all that were just accepted, and once more those of one that begins. So an operation is
accepted when there is room for it in the worst step. What is refused leaves no trace in the history, and its caller
asks again. But a refusal is sent with the arguments, and several processes ask at the same moment. So a caller with
large arguments first asks for room, which is small, and sends them only when room is kept for them. There is also room
for one refusal, of a caller of an earlier version.

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


RESERVED_S = 20.0
"""How long room is kept for arguments that do not come; reached: they are held against what room there is then."""


@dataclass(frozen=True)
class _OperationSize:
    is_reading: bool
    size: int


class OperationAdmission:
    """The operations of a task that were accepted and are not answered, and the room that is kept for others. `step`:
    which one it is, any number that is another one in the next step. `now_s`: the time, from any beginning.
    """

    def __init__(self) -> None:
        self._asked: dict[str, _OperationSize] = {}
        self._reserved: dict[str, tuple[_OperationSize, float]] = {}
        self._step, self._sent = -1, 0

    def __contains__(self, operation_id: str) -> bool:
        return operation_id in self._asked

    def takes(self, operation: dict[str, Any], step: int, now_s: float = 0.0) -> bool:
        """Whether an operation may be accepted now. What stops checks always may."""
        return operation["name"] in STOPS or self._has_room(operation["id"], _describe(operation), step, now_s)

    def may_reserve(self, wanted: dict[str, Any], step: int, now_s: float) -> bool:
        """Whether room can be kept for an operation. `wanted`: its `id`, `name` and `size`."""
        return self._has_room(wanted["id"], _describe_wanted(wanted), step, now_s)

    def reserve(self, wanted: dict[str, Any], now_s: float) -> None:
        """Keep room for an operation that its caller sends next."""
        self._reserved = {key: kept for key, kept in self._reserved.items() if kept[1] > now_s}
        if wanted["id"] not in self._asked:
            self._reserved[wanted["id"]] = _describe_wanted(wanted), now_s + RESERVED_S

    def _has_room(self, operation_id: str, new: _OperationSize, step: int, now_s: float) -> bool:
        others = [*self._asked.values()]
        kept = [size for key, (size, ends_s) in self._reserved.items() if key != operation_id and ends_s > now_s]
        if not others and not kept:
            return True
        begins = max((one.size for one in (*others, *kept, new) if not one.is_reading), default=0)
        arguments = new.size + sum(one.size for one in kept)
        now = _count_answers(others) * ANSWER_BYTES + STEP_BYTES - self.count_room(step) + arguments + begins
        later = _count_answers([*others, *kept, new]) * ANSWER_BYTES + ARGUMENT_BYTES + begins
        return max(now, later) <= STEP_BYTES

    def accept(self, operation: dict[str, Any], step: int) -> None:
        """Note that an operation was accepted in this step."""
        self._reserved.pop(operation["id"], None)
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


def _describe_wanted(wanted: dict[str, Any]) -> _OperationSize:
    return _OperationSize(wanted["name"] in ALL_READS, min(int(wanted["size"]), ARGUMENT_BYTES))


def _count_answers(asked: list[_OperationSize]) -> int:
    """How many of these may be answered in one step: of those that change the task, one has its turn."""
    return sum(one.is_reading for one in asked) + any(not one.is_reading for one in asked)
