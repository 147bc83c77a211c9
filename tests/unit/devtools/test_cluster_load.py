"""The load on a cluster is the same each time, and its judge notices what must not be."""

from __future__ import annotations

import time

import pytest

from benchmarks._load_agents import Kills
from benchmarks._load_plan import (
    LoadScale,
    StepKind,
    Tally,
    describe_counts,
    describe_times,
    expect_verdict,
    judge_check,
    plan_tasks,
)
from benchmarks.cluster_load import find_scale, parse_arguments
from sandbox.models import Verdict
from sandbox.models.operations import OperationAnswer

ONE, TWO = "worker-" + 16 * "1", "worker-" + 16 * "2"
TASK = "task-7f1e2a34-0000-4000-8000-000000000000"


def answer(worker: str, epoch: int) -> OperationAnswer:
    return OperationAnswer(operation_id="a", task_id=TASK, epoch=epoch, worker=worker)


@pytest.mark.parametrize("checks", [7, 1000])
def test_a_plan_has_the_tasks_and_checks_of_its_scale(checks: int) -> None:
    plans = plan_tasks(LoadScale(tasks=6, checks=checks))
    kinds = [step.kind for plan in plans for step in plan]
    assert len(plans) == 6
    assert kinds.count(StepKind.CHECK) + kinds.count(StepKind.CANCEL) == checks
    assert plans == plan_tasks(LoadScale(tasks=6, checks=checks))


def test_a_large_plan_has_checks_that_pass_that_fail_and_that_are_cancelled() -> None:
    steps = [step for plan in plan_tasks(LoadScale()) for step in plan]
    writes = {expect_verdict(step.content) for step in steps if step.kind is StepKind.WRITE}
    assert writes == {Verdict.PASSED, Verdict.FAILED}
    assert {step.kind for step in steps} == set(StepKind)


@pytest.mark.parametrize("verdicts", [["passed"], ["killed"], [], ["failed", "failed"]])
def test_a_verdict_that_is_not_the_expected_one_is_wrong(verdicts: list[str]) -> None:
    tally = Tally()
    judge_check(tally, verdicts, Verdict.FAILED, "a check")
    assert (tally.faults["wrong verdicts"], tally.done) == (1, 1)


def test_the_right_verdict_is_no_fault() -> None:
    tally = Tally()
    judge_check(tally, ["failed"], Verdict.FAILED, "a check")
    assert (tally.faults.total(), tally.answered["failed"]) == (0, 1)


def test_a_task_has_recovered_when_another_worker_answers() -> None:
    tally = Tally()
    kills = Kills(tally)
    kills.note_answer(answer(ONE, 1))
    assert kills.note_kill("kill 1", TWO) == 0
    assert kills.note_kill("kill 2", ONE) == 1
    kills.note_answer(answer(ONE, 1))
    assert tally.recovered == {}, "it was on its way"
    kills.note_answer(answer(TWO, 2))
    kills.note_answer(answer(TWO, 2))
    assert [len(each) for each in tally.recovered.values()] == [1]


def test_a_task_has_recovered_when_its_worker_is_back_and_answers() -> None:
    tally = Tally()
    kills = Kills(tally)
    kills.note_answer(answer(ONE, 1))
    kills.note_kill("kill 1", ONE)
    time.sleep(0.01)
    kills.note_return(ONE)
    kills.note_answer(answer(ONE, 1))
    assert tally.recovered["kill 1"][0] >= 0.01


def test_a_task_that_was_closed_waits_for_no_answer() -> None:
    tally = Tally()
    kills = Kills(tally)
    kills.note_answer(answer(ONE, 1))
    kills.forget(TASK)
    assert kills.note_kill("kill 1", ONE) == 0


def test_figures_are_one_line_each() -> None:
    assert describe_counts({"failed": 2, "passed": 3}) == "3 passed, 2 failed"
    assert describe_counts({}) == "0"
    assert describe_times([9.0, 1.0, 2.0]) == "median 2.0 s, max 9.0 s, 3 tasks"
    assert describe_times([]) == "no task was on it"


def test_the_largest_size_counts_and_a_number_replaces_it() -> None:
    def parse_scale(words: list[str]) -> LoadScale:
        return find_scale(parse_arguments(words))

    assert parse_scale([]) == LoadScale(200, 1000, 16)
    assert parse_scale(["small", "medium"]).tasks == 40
    assert parse_scale(["small", "--checks", "9"]) == LoadScale(6, 9, 4)
