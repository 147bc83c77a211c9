"""Tests of a report named to their runner; and runs of a check added up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandbox.checks.comparison import CheckSide, Reruns
from sandbox.checks.repeated import add_up, find_flaky
from sandbox.checks.runner_arguments import add_arguments, select_tests
from sandbox.checks.shuffle import shuffle_check
from sandbox.models import Check, FailedTest, TestOutcome, TestResult, Verdict
from sandbox.models.checks import CheckParameter, TestSelector
from tests.unit.store.test_verdicts import made

FILES = {"tests/test_a.py", "api/tests/test_b.py", "src/a.test.js"}


def check(selects: TestSelector | None, cwd: str = ".") -> Check:
    parameter = CheckParameter(name="tests", pattern=".*", many=True, selects=selects)
    return Check(id="test", label="t", argv=("run", "<tests>"), cwd=cwd, parameters=(parameter,))


@pytest.mark.parametrize(
    ("selects", "tests", "expected"),
    [
        ("pytest", ["tests.test_a::test_x[1-a]", "tests.test_a.TestB::test_y"],
         ("tests/test_a.py::test_x[1-a]", "tests/test_a.py::TestB::test_y")),
        ("pytest", ["tests.test_a::test_x", "tests.gone::test_z"], None),
        ("pytest", ["no module"], None),
        ("ctest", ["unit.a::unit.a", "b"], ("^(unit[.]a|b)$",)),
        ("ctest", ["a|b::a|b"], None),
        ("cargo", ["tests::adds"], ("tests::adds",)),
        ("cargo", ["tests::adds", "tests::other"], None),
        ("files", ["src/a.test.js::adds", "src/a.test.js::subtracts"], ("src/a.test.js",)),
        ("files", ["adds"], None),
        ("surefire", ["com.x.ParserTest::reads", "com.x.OtherTest::adds(int)[1]"],
         ("com.x.ParserTest#reads,com.x.OtherTest#adds",)),
        ("gradle", ["com.x.ParserTest::reads()"], ("com.x.ParserTest.reads",)),
        ("gradle", ["com.x.ParserTest::reads()", "com.x.ParserTest::adds()"], None),
        (None, ["a"], None),
    ],
)  # fmt: skip
def test_tests_are_named_to_their_runner(
    selects: TestSelector | None, tests: list[str], expected: tuple[str, ...] | None
) -> None:
    found = [TestResult(test=name, outcome=TestOutcome.FAILED) for name in tests]
    assert select_tests(check(selects), found, FILES.__contains__) == expected


def test_a_file_is_looked_for_in_the_folder_of_the_check() -> None:
    found = [TestResult(test="tests.test_b::test_c", outcome=TestOutcome.FAILED)]
    assert select_tests(check("pytest", "api"), found, FILES.__contains__) == ("tests/test_b.py::test_c",)
    assert select_tests(check("pytest"), found, FILES.__contains__) is None


def test_a_failure_has_the_argument_that_runs_it_alone() -> None:
    failures = [
        FailedTest(test="tests.test_b::test_c[1]", message="m"),
        FailedTest(test="tests.gone::test_z", message="m"),
    ]
    found = add_arguments(check("pytest", "api"), failures, FILES.__contains__)
    assert [failure.argument for failure in found] == ["tests/test_b.py::test_c[1]", None]
    assert [failure.argument for failure in add_arguments(check(None), failures, FILES.__contains__)] == [None, None]
    by_path = [FailedTest(test="adds", message="m", path="src/a.test.js", line=3)]
    assert add_arguments(check("files"), by_path, FILES.__contains__)[0].argument == "src/a.test.js"


def ran(tests: str | None, verdict: Verdict, *arguments: str) -> CheckSide:
    outcomes = {"+": TestOutcome.PASSED, "-": TestOutcome.FAILED}
    results = None if tests is None else [TestResult(test=t[1:], outcome=outcomes[t[0]]) for t in tests.split()]
    return CheckSide(made(verdict, 0, arguments=arguments), results)


def test_runs_are_added_up_and_both_outcomes_are_flaky() -> None:
    sides = [ran("-a +b -c", Verdict.FAILED), ran("+a -c", Verdict.FAILED, "a"), ran("+a", Verdict.PASSED, "a")]
    assert add_up(sides) == {"a": Reruns(3, 1), "b": Reruns(1, 0, passed_among_all=True), "c": Reruns(2, 2)}
    (flaky,) = find_flaky("test", "a" * 40, sides, datetime.now(UTC))
    assert (flaky.test, flaky.rate) == ("a", 0.333)
    whole = [ran(None, Verdict.FAILED), ran(None, Verdict.PASSED), ran(None, Verdict.TIMED_OUT)]
    assert add_up(whole) == {"": Reruns(2, 1, passed_among_all=True)}


def test_what_is_known_of_the_cause_is_said() -> None:
    now = datetime.now(UTC)
    alone = [ran("-a", Verdict.FAILED), ran("+a", Verdict.PASSED, "a")]
    assert "passed without them" in find_flaky("test", "a" * 40, alone, now)[0].remark
    chance = [ran("-a", Verdict.FAILED), ran("+a", Verdict.PASSED, "a"), ran("-a", Verdict.FAILED, "a")]
    assert "time or chance" in find_flaky("test", "a" * 40, chance, now)[0].remark
    same = [ran("-a", Verdict.FAILED), ran("+a", Verdict.PASSED)]
    assert "the same command gave both" in find_flaky("test", "a" * 40, same, now)[0].remark


def test_only_a_check_that_knows_how_is_shuffled() -> None:
    plain = check(None)
    assert shuffle_check(plain, 7) is plain
    knows = plain.model_copy(update={"env": {"A": "1"}, "shuffle": {"SEED": "s=<seed>"}})
    assert shuffle_check(knows, 7).env == {"A": "1", "SEED": "s=7"}
