"""How many operations of a task are in progress at once: as many as the server takes in one step."""

from __future__ import annotations

import pytest

from sandbox.cluster.operation_admission import RESERVED_S, STEP_BYTES, OperationAdmission
from sandbox.cluster.task_queues import ARGUMENT_BYTES, LARGE_BYTES


def accept_all(admission: OperationAdmission, *asked: tuple[str, int]) -> list[bool]:
    """Whether each is accepted, in steps of their own. Each is the name and the size of arguments."""
    taken = []
    for step, (name, size) in enumerate(asked):
        operation = {"id": f"{name}-{step}", "name": name, "arguments": "x" * size}
        taken.append(admission.takes(operation, step))
        if taken[-1]:
            admission.accept(operation, step)
    return taken


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ([("status", 0)] * 4, [True, True, True, False]),
        ([("check", 1000), ("status", 0), ("diff", 1000), ("status", 0)], [True, True, True, False]),
        ([("write-file", ARGUMENT_BYTES - 100), ("status", 0), ("status", 0)], [True, True, False]),
        ([("check", LARGE_BYTES), ("status", 0), ("status", 0)], [True, True, False]),
        ([("status", 0)] * 3 + [("stop-checks", 0)], [True] * 4),
        ([("check", 100), ("edit-file", 100), ("edit-file", 100)], [True, True, True]),
    ],
)
def test_two_are_read_beside_a_check_and_what_is_small_waits_for_its_turn(
    asked: list[tuple[str, int]], taken: list[bool]
) -> None:
    assert accept_all(OperationAdmission(), *asked) == taken


def test_an_answer_makes_room() -> None:
    admission = OperationAdmission()
    assert accept_all(admission, *[("status", 0)] * 4) == [True, True, True, False]
    admission.answer("status-0", {"value": "x" * 1000_000}, 4)
    assert admission.takes({"id": "late", "name": "status"}, 4)
    assert admission.count_room(4) < STEP_BYTES - 1_000_000, "the answer is sent in this step"
    assert admission.count_room(5) == STEP_BYTES


def test_room_is_kept_for_large_arguments_until_they_come_or_do_not() -> None:
    """Of several that would all arrive in one step, as many have room as the server takes with one that begins."""
    admission = OperationAdmission()
    wanted = [{"id": str(number), "name": "check", "size": ARGUMENT_BYTES} for number in range(10)]

    def reserve(first: int, now_s: float) -> list[str]:
        taken = []
        for one in wanted[first:]:
            if admission.may_reserve(one, 0, now_s):
                admission.reserve(one, now_s)
                taken.append(str(one["id"]))
        return taken

    assert reserve(0, 0.0) == [*"0123"]
    assert reserve(4, RESERVED_S - 1) == []
    arrived = {"id": "0", "name": "check", "arguments": "x" * (ARGUMENT_BYTES - 100)}
    assert admission.takes(arrived, 0, 1.0), "it has its room"
    assert not admission.takes({**arrived, "id": "old"}, 0, 1.0), "one that did not ask has none"
    assert reserve(4, RESERVED_S) == [*"4567"], "those did not come"
