"""What is no argument of the public API is `invalid_input`, whatever it is, and never an error of Python's."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ReceiptQuestion, SearchQuery, TaskOptions
from sandbox.workbench import VerifyOptions, Watch, Workbench
from sandbox.workbench.controller.arguments import check_argument_types
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

ODD: dict[str, Any] = {"none": None, "number": 5, "bytes": b"x", "list": ["x", 1], "dict": {"a": 1}, "object": object()}
SIGNATURES = {
    name: inspect.signature(method)
    for name, method in inspect.getmembers(Workbench, inspect.isfunction)
    if not name.startswith("_")
}
TAKEN = {
    "str": {"number", "bytes", "list", "dict", "object", "none"},
    "str | None": {"number", "bytes", "list", "dict", "object"},
    "Sequence[str]": {"number", "bytes", "list", "dict", "object", "none"},
}
CASES = {
    name: [
        (parameter.name, ODD[odd])
        for parameter in signature.parameters.values()
        for odd in sorted(TAKEN.get(parameter.annotation, ()))
    ]
    for name, signature in SIGNATURES.items()
}


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with Workbench(tmp_path_factory.mktemp("arguments") / "home", environ={}) as workbench:
        yield workbench


@pytest.mark.parametrize("method", [name for name, cases in CASES.items() if cases])
def test_a_wrong_type_is_invalid_input(method: str, workbench: Workbench) -> None:
    """By name, with no other argument: those are not looked at before."""
    for parameter, odd in CASES[method]:
        with refused(ErrorCode.INVALID_INPUT) as caught:
            getattr(workbench, method)(**{parameter: odd})
        assert f"{method}: '{parameter}' should be " in caught.value.brief


def test_most_of_the_api_is_among_the_cases() -> None:
    """Control: renamed annotations would leave nothing to check."""
    assert len([name for name, cases in CASES.items() if cases]) > 35
    assert sum(map(len, CASES.values())) > 250


def test_by_position_and_for_models_too(workbench: Workbench) -> None:
    for attempt, said in (
        (lambda: workbench.read_file("task-x", "f", "1"), "'start_line' should be int | None, not str"),  # type: ignore[arg-type]
        (lambda: workbench.search("task-x", "pattern"), "'query' should be SearchQuery, not str"),  # type: ignore[arg-type]
        (lambda: workbench.apply_patch("task-x", "text", {}), "'patch' should be bytes, not str"),  # type: ignore[arg-type]
        (lambda: workbench.apply_patch("task-x", b"", ["f"]), "'expected_hashes' should be Mapping"),  # type: ignore[arg-type]
        (lambda: workbench.verify("task-x", print), "'watch' should be Watch | None"),  # type: ignore[arg-type]
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            attempt()
        assert said in caught.value.brief


TEXTS = {("fork_task", "prompt")}
CHOSEN = [
    (name, parameter.name)
    for name, signature in SIGNATURES.items()
    for parameter in signature.parameters.values()
    if parameter.annotation == "str | None" and (name, parameter.name) not in TEXTS
]


@pytest.mark.parametrize(("method", "parameter"), CHOSEN)
def test_s227_an_empty_choice_is_not_taken_for_none(workbench: Workbench, method: str, parameter: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        getattr(workbench, method)(**{parameter: ""})
    assert caught.value.brief == f"{method}: '{parameter}' is empty"


def test_s227_an_empty_choice_in_a_question_is_not_taken_for_none(workbench: Workbench) -> None:
    for attempt, name in (
        (lambda: workbench.verify_receipt(b"", ReceiptQuestion(repository="")), "question.repository"),
        (lambda: workbench.verify_receipt(b"", ReceiptQuestion(commit="")), "question.commit"),
        (lambda: workbench.verify("task-x", None, VerifyOptions(runtime="")), "options.runtime"),
        (lambda: workbench.run("/x", options=VerifyOptions(changed_since="")), "options.changed_since"),
        (lambda: workbench.create_task("x", options=TaskOptions(profile="")), "options.profile"),
        (lambda: workbench.search("task-x", SearchQuery(pattern="x", glob="")), "query.glob"),
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            attempt()
        assert f"'{name}' is empty" in caught.value.brief
    assert len(CHOSEN) > 30  # renamed annotations would leave nothing to check


def test_what_is_right_passes(workbench: Workbench) -> None:
    for attempt in (
        lambda: workbench.search("task-x", SearchQuery(pattern="x")),
        lambda: workbench.read_file("task-x", "f", None, 3),
        lambda: workbench.run_checks("task-x", ["a"], Watch()),
        lambda: workbench.run_checks("task-x", ("a",), None, runtime=None),
        lambda: workbench.edit_file("task-x", "f", "old", b"new", "sha256:x"),
    ):
        with refused(ErrorCode.NOT_FOUND):
            attempt()


def test_one_check_is_a_sequence_too(workbench: Workbench) -> None:
    with pytest.raises(SandboxError) as caught:
        workbench.run_checks("task-x", "test")
    assert '["test"]' in caught.value.hint


def test_no_check_at_all_is_called_that(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("Makefile", b"test:\n")
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench, refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.run_checks(desk.task.id, [])
    assert caught.value.brief == "No check was named"
    assert "test" in caught.value.hint


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pull_request_is_followed_for_a_time_that_ends(workbench: Workbench, seconds: float) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        workbench.follow_pull_request("task-x", timeout_s=seconds)
    with refused(ErrorCode.NOT_FOUND):
        workbench.follow_pull_request("task-x", timeout_s=1)


def test_what_a_container_holds_is_checked(workbench: Workbench) -> None:
    for call in (
        lambda: workbench.apply_patch("task-x", b"", {1: 2}),  # type: ignore[dict-item]
        lambda: workbench.apply_patch("task-x", b"", {"a": 2}),  # type: ignore[dict-item]
        lambda: workbench.sync_task("task-x", resolutions=None),  # type: ignore[arg-type]
        lambda: workbench.sync_task("task-x", resolutions=["x"]),  # type: ignore[list-item]
        lambda: workbench.capabilities({"a": 1}),  # type: ignore[dict-item]
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            call()
        assert "should be" in caught.value.brief
    with refused(ErrorCode.NOT_FOUND):
        workbench.apply_patch("task-x", b"", {"a": None, "b": "c"})


@pytest.mark.parametrize("task_id", ["x/../../../../out", "a\0b", "\ud800", "x" * 300], ids=ascii)
def test_what_is_no_id_becomes_no_part_of_a_path(task_id: str, workbench: Workbench) -> None:
    for call in (
        lambda: workbench.find_done_operation(task_id, 1),
        lambda: workbench.end_task_state("https://hub.invalid/o/r", task_id, 1),
    ):
        with refused(ErrorCode.INVALID_INPUT):
            call()


@pytest.mark.parametrize("path", ["a\0b", "a\ud800", "x" * 300, "x/" * 2500], ids=["NUL", "surrogate", "name", "path"])
def test_what_cannot_be_a_path_is_invalid_input(path: str, workbench: Workbench) -> None:
    for call in (workbench.apply_task, lambda _, given: workbench.policy_differences(Path(given))):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            call("task-x", path)
        assert "cannot be a path" in caught.value.brief


@pytest.mark.parametrize(
    "given",
    [
        {"home": ""},
        {"home": b"home"},
        {"home": "a\0b"},
        {"home": "a\ud800"},
        {"settings": 5},
        {"settings": {1: 2}},
        {"settings": {"git": {1: 2}}},
        {"allow_file": "no"},
        {"progress": 5},
        {"actor": "x"},
        {"environ": 5},
        {"environ": {"SANDBOX_GATE__REQUIRE": 5}},
    ],
    ids=repr,
)
def test_the_constructor_refuses_what_is_no_argument_of_it(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`home=""`, as of a variable that is not set, was the default home; `allow_file="no"` allowed local paths."""
    monkeypatch.chdir(tmp_path)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        Workbench(**{"home": tmp_path / "home", "environ": {"SANDBOX_HOME": str(tmp_path / "home")}, **given})
    assert "config.toml" not in caught.value.details


@check_argument_types
class Failing:
    def work(self, number: int) -> None:
        raise OSError(number, "it failed")


def test_what_the_host_is_short_of_gets_a_code_and_other_failures_stay_what_they_are() -> None:
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        Failing().work(errno.ENOSPC)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OSError, match="it failed") as other:
        Failing().work(errno.EIO)
    assert other.value.__cause__ is None
