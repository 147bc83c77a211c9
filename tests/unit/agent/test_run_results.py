"""Runs as an agent reads them, and what `tools/list` costs it."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from sandbox.agent.outputs import RunResult, VerifyResult, WaitRunResult
from sandbox.agent.results import success
from sandbox.agent.run_results import FAILURE_TOKENS, NOT_BEGUN, TAIL_BESIDE_FAILURES, build_answer, run_result
from sandbox.agent.schemas import input_schema, result_schema
from sandbox.agent.server import _describe_tool
from sandbox.agent.shown_results import BUDGET_BYTES
from sandbox.agent.tools import TOOLS
from sandbox.models import (
    BackgroundRun,
    Cause,
    CauseKind,
    CheckComparison,
    CheckRun,
    FailedTest,
    Limits,
    LogLines,
    Report,
    TestChange,
    TestChangeKind,
    TestFailure,
    TreeComparison,
    Usage,
    Verdict,
    Verification,
)

TOKENS, TOKENS_PER_TOOL = 5_000, 125
"""`tools/list`, as bytes / 4. The same tools took 7,932 and 256 when they had whole schemas (docs/adr/0073)."""

FIRST = ["verdict", "failures", "exit_code", "stdout_tail", "stdout_shown_from_byte"]


def run_of(verdict: Verdict = Verdict.FAILED, **changed: Any) -> CheckRun:
    fields: dict[str, Any] = {
        "run_id": f"run-{1:032x}",
        "check_id": "test",
        "task_id": None,
        "verdict": verdict,
        "exit_code": 0 if verdict is Verdict.PASSED else 1,
        "signal": None,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "wall_time_s": 1.5,
        "usage": Usage(cpu_time_s=1.0, limits=Limits()),
        "stdout_tail": "the end\n",
        "stderr_tail": "",
        "stdout_bytes": 10_000,
        "stderr_bytes": 0,
        "stdout_shown_from_byte": 9_992,
        "stderr_shown_from_byte": 0,
        "truncated": True,
        "tree": "a" * 40,
        "clean_room": False,
        "cached": False,
        "image_digest": "sha256:" + "0" * 64,
        "runtime": "runc",
        "report": Report(
            tests=9, failures=1, errors=0, skipped=0, failed=(TestFailure(name="t", message="m", path="a.py", line=3),)
        ),
        "failures": (FailedTest(test="t", message="m", path="a.py", line=3),),
    }
    return CheckRun(**{**fields, **changed})


def document(found: BaseModel, tool: str = "space_repo_run_check", budget: int = BUDGET_BYTES) -> dict[str, Any]:
    answer: dict[str, Any] = success(TOOLS[tool], found, budget).structured_content
    jsonschema.validate(answer, dict(_describe_tool(TOOLS[tool]).output_schema or {}))
    return answer


def background(**changed: Any) -> BackgroundRun:
    fields: dict[str, Any] = {
        "run_id": f"run-{'0' * 32}",
        "task_id": f"task-{uuid.UUID(int=1)}",
        "operation": "verify" if "verification" in changed else "check",
        "state": "finished",
        "started_at": datetime(2026, 11, 22, tzinfo=UTC),
        "elapsed_s": 3.0,
    }
    return BackgroundRun(**{**fields, **changed})


@pytest.mark.parametrize(
    ("tool", "shape"),
    [
        ("space_repo_run_check", RunResult),
        ("space_repo_verify", VerifyResult),
        ("space_repo_wait_run", WaitRunResult),
        ("space_repo_stop_run", WaitRunResult),
    ],
)
def test_a_run_that_goes_on_says_how_far_it_is(tool: str, shape: type[RunResult]) -> None:
    run = background(state="running", check_id="test", deadline_s=600.0, last_lines=("one", "two"))
    found = document(build_answer(run, shape), tool)
    assert found == {
        "run_id": run.run_id,
        "task_id": run.task_id,
        "state": "running",
        "check_id": "test",
        "elapsed_s": 3.0,
        "deadline_s": 600.0,
        "last_lines": ["one", "two"],
    }


@pytest.mark.parametrize("shape", [RunResult, WaitRunResult])
def test_a_check_that_has_not_begun_says_that_edits_are_still_taken(shape: type[RunResult]) -> None:
    """Its image or layers are prepared before it holds the task. Control: the test above, and a verification, which
    checks a commit.
    """
    assert build_answer(background(state="running"), shape).notes == (NOT_BEGUN,)
    assert build_answer(background(state="running", operation="verify"), shape).notes is None


def holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(holds_null, value.values()))
    return value is None or (isinstance(value, list) and any(map(holds_null, value)))


def test_what_went_wrong_comes_first_and_nothing_is_null() -> None:
    found = document(run_result(run_of()))
    assert [key for key in found if key in FIRST] == FIRST
    assert next(iter(found)) == "verdict"
    assert found["failures"] == [{"test": "t", "message": "m", "path": "a.py", "line": 3}]
    assert (found["truncated"], found["stdout_shown_from_byte"]) == (True, 9_992)
    assert "stderr_tail" not in found
    assert found["report"] == {"tests": 9, "failures": 1, "errors": 0, "skipped": 0}
    assert found["usage"] == {"cpu_time_s": 1.0}
    assert not holds_null(found)


def test_a_failed_phase_of_a_launch_has_the_end_of_what_it_printed() -> None:
    """Control: one that passed has its line only."""
    output = "".join(f"{number:03} {'x' * 300}\n" for number in range(100))
    phases = [
        {"phase": "probe", "name": name, "verdict": verdict, "wall_time_s": 0.5, "output": output}
        for name, verdict in (("a", "passed"), ("b", "failed"))
    ]
    shown = document(run_result(run_of(phases=phases)))["phases"]
    assert (len(shown), shown[0], shown[1]) == (17, "probe a: passed in 0.5 s", "probe b: failed in 0.5 s")
    assert shown[-1] == f"| 099 {'x' * 196}"


def test_a_run_that_passed_has_no_tails() -> None:
    passed = run_of(Verdict.PASSED, report=None, failures=())
    found = document(build_answer(background(runs=(passed,)), RunResult))
    assert not {"stdout_tail", "stderr_tail", "truncated", "failures", "report", "cause"} & set(found)
    assert (found["verdict"], found["exit_code"], found["state"]) == ("passed", 0, "finished")
    assert len(json.dumps(found)) < 600


def test_a_cause_is_passed_on() -> None:
    run = run_of(cause=Cause(kind=CauseKind.ENVIRONMENT, sentence="There is no command cmake"))
    found = document(run_result(run))
    assert list(found)[:2] == ["verdict", "cause"]
    assert found["cause"] == {"kind": "environment", "sentence": "There is no command cmake"}


def test_a_verification_keeps_every_run_when_its_tails_are_too_long() -> None:
    long = run_of(stdout_tail="\ufffd" * 8192, stderr_tail="\ufffd" * 8192)
    runs = (run_of(Verdict.PASSED, check_id="build"), *[long] * 4)
    verification = Verification(runs=runs, verified=False, tree="a" * 40)
    found = document(
        build_answer(background(verification=verification), VerifyResult), "space_repo_verify", BUDGET_BYTES
    )
    assert [run["check_id"] for run in found["runs"]] == ["build", *["test"] * 4]
    assert all(run["failures"] for run in found["runs"][1:])
    assert len(json.dumps(found, separators=(",", ":"))) <= BUDGET_BYTES
    assert "differences" not in found
    cut = [run for run in found["runs"] if len(run.get("stdout_tail", "")) < 8192 and "stdout_tail" in run]
    assert cut
    assert all(run["truncated"] and "stdout_shown_from_byte" not in run for run in cut)


def test_a_run_that_passed_without_a_test_says_so() -> None:
    empty = Report(tests=0, failures=0, errors=0, skipped=0, failed=())
    notes = run_result(run_of(Verdict.PASSED, report=empty)).notes
    assert notes is not None
    assert "0 tests" in notes[0]


@pytest.mark.parametrize(("uncommitted", "shown"), [(2, 2), (0, None), (None, None)])
def test_a_verification_says_beside_its_verdict_what_is_not_verified(
    uncommitted: int | None, shown: int | None
) -> None:
    verification = Verification(runs=(), verified=True, tree="a" * 40, commit="b" * 40, uncommitted=uncommitted)
    answer = build_answer(background(verification=verification), VerifyResult).model_dump(mode="json")

    assert answer.get("uncommitted") == shown
    assert answer["commit"] == "b" * 40, "the task may have another one by now"
    if shown:
        assert list(answer)[:2] == ["verified", "uncommitted"]


def test_a_record_of_an_older_version_loads() -> None:
    old = run_of().model_dump(mode="json")
    for name in ("failures", "stdout_shown_from_byte", "stderr_shown_from_byte"):
        del old[name]
    for failure in old["report"]["failed"]:
        del failure["path"], failure["line"]
    run = CheckRun.model_validate(old)
    assert (run.failures, run.stdout_shown_from_byte) == ((), None)
    assert not holds_null(document(run_result(run)))
    assert CheckRun.model_validate(run_of().model_dump(mode="json")) == run_of()


# --- schemas


def words_of(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema).union(*map(words_of, schema.values()))
    return set[str]().union(*map(words_of, schema)) if isinstance(schema, list) else set()


def test_the_list_of_tools_is_short() -> None:
    listed = [_describe_tool(tool).model_dump(mode="json", by_alias=True, exclude_none=True) for tool in TOOLS.values()]
    tokens = len(json.dumps({"tools": listed}, separators=(",", ":"))) / 4
    assert tokens <= min(TOKENS, TOKENS_PER_TOOL * len(listed))
    assert not words_of([tool["outputSchema"] for tool in listed]) & {"title", "description", "$defs", "$ref"}
    assert "title" not in {word for tool in listed for word in tool["inputSchema"]}


@pytest.mark.parametrize("name", TOOLS)
def test_a_short_schema_names_what_the_model_has(name: str) -> None:
    tool = TOOLS[name]
    assert set(input_schema(tool.input_model)["properties"]) == set(tool.input_model.model_fields)
    assert set(input_schema(tool.input_model).get("required", ())) == {
        field for field, info in tool.input_model.model_fields.items() if info.is_required()
    }
    assert set(result_schema(tool.result_model).get("required", ())) <= set(tool.result_model.model_fields)
    jsonschema.Draft202012Validator.check_schema(input_schema(tool.input_model))
    jsonschema.Draft202012Validator.check_schema(result_schema(tool.result_model))


def test_what_may_be_absent_is_neither_required_nor_null() -> None:
    assert result_schema(LogLines)["required"][:2] == ["run_id", "stream"]
    assert "start_line" not in result_schema(LogLines)["required"]
    fields = input_schema(TOOLS["space_repo_read_log"].input_model)["properties"]
    assert fields["start_line"]["type"] == "integer"
    hashes = input_schema(TOOLS["space_repo_write_file"].input_model)["properties"]["expected_sha256"]
    assert {"type": "null"} in hashes["anyOf"]  # required: null says that the file is new


def test_named_failures_come_before_tails_within_their_budget() -> None:
    """Control: without failures the tails are whole."""
    many = tuple(FailedTest(test=f"t{n}", message="m" * 480) for n in range(50))
    tails: dict[str, Any] = {"stdout_tail": "x" * 8000, "stderr_tail": "y" * 8000}
    found = document(run_result(run_of(Verdict.FAILED, failures=many, **tails)))
    assert 10 < len(found["failures"]) < 20
    assert len(json.dumps(found["failures"])) <= 4 * FAILURE_TOKENS + 600
    assert found["failures"][0]["test"] == "t0"
    assert (len(found["stdout_tail"]), found["truncated"]) == (TAIL_BESIDE_FAILURES, True)
    assert "stdout_shown_from_byte" not in found
    plain = document(run_result(run_of(Verdict.FAILED, failures=(), report=None, **tails)))
    assert len(plain["stdout_tail"]) == 8000
    crashed = document(run_result(run_of(Verdict.FAILED, failures=many, exit_code=139, **tails)))
    assert len(crashed["stderr_tail"]) == 8000, "the report may miss what crashed"


def test_a_comparison_is_short_and_says_what_to_do() -> None:
    changes = tuple(TestChange(test=f"t{n}", change=TestChangeKind.STILL_FAILING) for n in range(40))
    new = TestChange(test="fresh", change=TestChangeKind.NEW)
    check = CheckComparison(
        check_id="test",
        before=Verdict.FAILED,
        after=Verdict.FAILED,
        by="tests",
        counts={TestChangeKind.STILL_FAILING: 40, TestChangeKind.NEW: 1},
        changes=(new, *changes),
        reasons=(),
    )
    comparison = TreeComparison(against="base", commit="b" * 40, tree="c" * 40, checks=(check,), no_new_failures=True)
    verification = Verification(
        runs=(run_of(),), verified=False, tree="a" * 40, no_new_failures=True, comparison=comparison
    )
    found = document(build_answer(background(verification=verification), VerifyResult), "space_repo_verify")
    assert list(found)[:2] == ["verified", "no_new_failures"]
    (shown,) = found["comparison"]
    assert (shown["counts"], len(shown["changes"])) == ({"still_failing": 40, "new": 1}, 20)
    assert "new_failures" not in shown
