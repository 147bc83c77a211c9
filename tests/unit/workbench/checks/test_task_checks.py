"""What a run in a task says beside its record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.models import Check, CheckRun, FailedTest, Verdict
from sandbox.models.checks import CheckParameter
from sandbox.profiles import Profile
from sandbox.workbench.checks.task_checks import _add_arguments
from tests.unit.agent.test_run_results import run_of

TESTS = CheckParameter(name="tests", pattern="[^-].*", many=True, selects="pytest")
PROFILE = Profile(
    name="p",
    label="p",
    image="base",
    check=(Check(id="test", label="t", argv=("pytest", "<tests>"), parameters=(TESTS,)),),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "tests").mkdir(parents=True)
    (tmp_path / "root" / "tests" / "test_a.py").touch()
    (tmp_path / "outside.py").touch()
    (tmp_path / "root" / "link").symlink_to("..")
    return tmp_path / "root"


def failed(*tests: str) -> CheckRun:
    return run_of(Verdict.FAILED, failures=tuple(FailedTest(test=test, message="m") for test in tests))


@pytest.mark.parametrize(
    ("test", "argument"),
    [
        ("tests.test_a::test_x", "tests/test_a.py::test_x"),
        ("tests.gone::test_x", None),
        ("link.outside::test_x", None),
        ("/etc/passwd\\0::x", None),
        ("::", None),
    ],
)
def test_a_failed_test_is_named_as_its_runner_takes_it(root: Path, test: str, argument: str | None) -> None:
    assert [failure.argument for failure in _add_arguments(failed(test), PROFILE, root).failures] == [argument]


def test_a_run_without_failed_tests_or_of_no_check_of_the_profile_is_as_it_was(root: Path) -> None:
    for run in (failed(), failed("tests.test_a::test_x").model_copy(update={"check_id": "other"})):
        assert _add_arguments(run, PROFILE, root) == run
