"""A failure on the other tree excuses one on the task's only if it is no chance (docs/adr/0190)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from sandbox.checks import repeated
from sandbox.checks.comparison import CheckSide, Reruns
from sandbox.models import Check, CheckRun, TestChangeKind, TestOutcome, TestResult, Verdict, Verification
from sandbox.models.runs import Pressure
from sandbox.store import runs
from sandbox.store.bindings import find_binding, save_binding
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.result_files import save_test_results
from sandbox.workbench import VerifyOptions
from sandbox.workbench.checks import repetition
from tests.unit.desk import Desk
from tests.unit.workbench.checks.scripted_rooms import BAD, GOOD, ScriptedRooms, Tests, commit_change, select_a

Script = Sequence[Tests | Verdict]


class Story:
    """What each run says, in order, of the base and of the task's own commit; the last one is said again."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, base: Script, own: Script) -> None:
        self.desk = desk
        self.base, self.own = commit_change(desk)
        said: dict[str, Script] = {self.base: base, self.own: own}

        def say(tree: str, _check: Check, number: int) -> Tests | Verdict:
            return said[tree][min(number, len(said[tree]) - 1)]

        self.rooms = ScriptedRooms(Home(desk.home), monkeypatch, say)

    def verify(self) -> Verification:
        return self.desk.workbench.verify(self.desk.task.id, None, VerifyOptions(against="base"))

    def count(self) -> tuple[int, int]:
        """How many runs there were of the base and of the task."""
        return len(self.rooms.ran[self.base]), len(self.rooms.ran[self.own])


def kind(found: Verification) -> TestChangeKind | None:
    assert found.comparison is not None
    (check,) = found.comparison.checks
    return next((change.change for change in check.changes if change.test == "a"), None)


def test_a_failure_of_the_base_by_chance_excuses_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(desk, monkeypatch, [BAD, GOOD], [BAD])
    found = story.verify()
    assert (found.no_new_failures, kind(found)) == (False, TestChangeKind.NEWLY_FAILING)
    assert [(one.test, one.tree, one.failed, one.ran) for one in found.flaky] == [("a", story.base, 1, 2)]
    assert story.count() == (2, 3), "the base once more; then what fails newly twice more"


def test_a_failure_that_the_base_repeats_excuses_one_and_runs_no_third_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(desk, monkeypatch, [BAD], [BAD])
    for _ in range(3):
        found = story.verify()
        assert (found.no_new_failures, kind(found)) == (True, TestChangeKind.STILL_FAILING)
    assert story.count()[0] == 2


@pytest.mark.parametrize(
    "second",
    [Verdict.TIMED_OUT, Verdict.KILLED, {"b": TestOutcome.PASSED}, {"a": TestOutcome.SKIPPED}, None],
    ids=["timed out", "killed", "without the test", "skipped", "no results"],
)
@pytest.mark.parametrize("first", [BAD, Verdict.FAILED], ids=["a test", "the check"])
def test_a_failure_of_the_base_without_a_second_one_excuses_none(
    first: Tests | Verdict, second: Tests | Verdict, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that should confirm it says nothing about it. Control: the test above."""
    found = Story(desk, monkeypatch, [first, second, GOOD], [first]).verify()
    assert not found.no_new_failures


@pytest.mark.parametrize("whole", [BAD, GOOD], ids=["fails", "passes"])
def test_only_the_whole_check_confirms_a_failure(whole: Tests, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it may fail each time for lack of the others, and pass each time for lack of what makes it fail."""
    select_a(monkeypatch)
    story = Story(desk, monkeypatch, [BAD, whole], [BAD])
    assert story.verify().no_new_failures is (whole == BAD)
    assert [run.arguments for run in story.rooms.ran[story.base]] == [(), ()]


def test_the_tests_of_a_run_are_added_up_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was once for each excused test, so thousands of them took minutes, in which no request could be stopped."""
    failed = {f"t{number}": TestOutcome.FAILED for number in range(200)}
    added, add_up = list[int](), repeated.add_up

    def count(sides: Sequence[CheckSide]) -> dict[str, Reruns]:
        added.append(len(sides))
        return add_up(sides)

    monkeypatch.setattr(repeated, "add_up", count)
    assert Story(desk, monkeypatch, [failed], [failed]).verify().no_new_failures
    assert len(added) < 10


def test_s230_a_pass_between_two_failures_of_the_base_starts_the_count_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a run that is no evidence, which no binding is kept of. Control: two failures in a row excuse."""
    story = Story(desk, monkeypatch, [BAD, GOOD, BAD, GOOD, BAD, BAD], [BAD])
    for expected in (False, False, True):
        found = story.verify()
        assert found.no_new_failures is expected
    assert kind(found) is TestChangeKind.STILL_FAILING
    assert story.count()[0] == 6


def test_a_test_that_is_flaky_on_both_trees_is_no_new_failure(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Story(desk, monkeypatch, [BAD, GOOD], [BAD, GOOD]).verify()
    assert (found.no_new_failures, kind(found)) == (True, TestChangeKind.FLAKY)


OTHER_BAD: Tests = {"a": TestOutcome.PASSED, "b": TestOutcome.FAILED}


@pytest.mark.parametrize(
    ("own", "is_part", "expected"),
    [
        pytest.param([BAD, OTHER_BAD, OTHER_BAD], False, False, id="the whole check"),
        pytest.param([BAD, OTHER_BAD, GOOD], False, True, id="control: one whole run is good"),
        pytest.param([BAD, {"a": TestOutcome.PASSED}, {"a": TestOutcome.PASSED}, OTHER_BAD], True, False, id="a part"),
        pytest.param([BAD, {"a": TestOutcome.PASSED}, {"a": TestOutcome.PASSED}, GOOD], True, True, id="control: part"),
    ],
)
def test_a_tree_that_fails_in_each_run_by_another_test_has_new_failures(
    own: list[Tests | Verdict], is_part: bool, expected: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_part:
        select_a(monkeypatch)
    found = Story(desk, monkeypatch, [GOOD], own).verify()
    assert (found.no_new_failures, kind(found)) == (expected, TestChangeKind.FLAKY)


def test_earlier_reruns_of_the_task_still_count(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """`b` fails newly and is flaky; then `a` turns out to be no excuse, and both run again, and fail."""
    bad = TestOutcome.FAILED
    both, a = {"a": bad, "b": bad}, {"a": bad, "b": TestOutcome.PASSED}
    story = Story(desk, monkeypatch, [BAD, GOOD], [both, a, a, both])
    found = story.verify()
    assert found.comparison is not None
    kinds = {change.test: (change.change.value, change.ran) for change in found.comparison.checks[0].changes}
    assert kinds == {"a": ("newly_failing", 5), "b": ("flaky", 5)}


def test_the_second_failure_of_the_check_is_no_second_failure_of_each_test(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main branch is red by one test, so its verdict is known after two runs; in the second one another failed."""
    bad = TestOutcome.FAILED
    red = {"a": bad, "b": bad}
    one: Tests = {"a": TestOutcome.PASSED, "b": bad}
    story = Story(desk, monkeypatch, [one, red, one], [red])
    for _ in range(3):
        found = story.verify()
        assert (found.no_new_failures, kind(found)) == (False, TestChangeKind.NEWLY_FAILING)
    assert found.comparison is not None
    assert found.comparison.checks[0].before_cached
    assert story.count()[0] == 3


@pytest.mark.parametrize(
    ("base", "own"),
    [([BAD, GOOD], [{"a": TestOutcome.FAILED, "b": TestOutcome.FAILED}]), ([BAD], [GOOD])],
    ids=["another test fails newly", "the task passes"],
)
def test_the_base_runs_once_where_its_failure_decides_nothing(
    desk: Desk, base: list[Tests], own: list[Tests], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(desk, monkeypatch, base, own)
    found = story.verify()
    assert found.no_new_failures is (own == [GOOD])
    assert story.count()[0] == 1


def _begin(run: CheckRun, minutes: float) -> CheckRun:
    return run.model_copy(update={"started_at": run.started_at + timedelta(minutes=minutes)})


def _starve(run: CheckRun) -> CheckRun:
    usage = run.usage.model_copy(update={"pressure": Pressure(of="guest", memory_s=2.0)})
    return _begin(run.model_copy(update={"usage": usage}), -60)


@pytest.mark.parametrize(
    ("change", "argv", "counts"),
    [
        pytest.param(lambda run: _begin(run, -60), None, True, id="control: before it"),
        pytest.param(lambda run: _begin(run, 60), None, True, id="control: after it"),
        pytest.param(lambda run: run, None, False, id="at the same time"),
        pytest.param(_starve, None, False, id="short of memory"),
        pytest.param(lambda run: _begin(run, -60), ("false",), False, id="of another command"),
    ],
)
def test_the_failure_of_another_request_counts_only_as_a_verdict_would(
    change: Callable[[CheckRun], CheckRun],
    argv: tuple[str, ...] | None,
    counts: bool,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tasks that verify at once on a busy host must not confirm the failures of each other (docs/adr/0021)."""
    story = Story(desk, monkeypatch, [BAD, GOOD], [BAD])
    home, listed = Home(desk.home), runs.list_runs

    def list_with_another(_: Home, owner: str, most: int) -> list[CheckRun]:
        (first,) = listed(home, owner, most)
        binding = find_binding(home, first)
        assert binding is not None
        if argv is not None:
            binding = binding.model_copy(update={"check": binding.check.model_copy(update={"argv": argv})})
        other = change(first).model_copy(update={"run_id": f"run-{'e' * 32}"})
        logs = home.logs(owner)
        save_run(home, owner, other)
        save_binding(logs, other.run_id, binding)
        results = [TestResult(test=name, outcome=outcome) for name, outcome in (BAD or {}).items()]
        save_test_results(logs, other.run_id, "junit", results, complete=True)
        return [other, first]

    monkeypatch.setattr(repetition, "list_runs", list_with_another)
    assert story.verify().no_new_failures is counts
    assert story.count()[0] == (1 if counts else 2)
