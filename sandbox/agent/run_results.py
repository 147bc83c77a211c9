"""Runs as shown to an agent: the verdict and the failing tests first, no nulls, no tails for runs that passed."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from sandbox.agent.outputs import RunResult, RunUsage, TestCounts
from sandbox.models import BackgroundRun, CheckRun, Report, Usage, Verdict, Verification

AnswerT = TypeVar("AnswerT", bound=BaseModel)

FAILURES = 20
"""Maximum of one run; its report has the total number."""

_AS_THEY_ARE = (
    *("verdict", "exit_code", "signal", "stdout_bytes", "stderr_bytes", "run_id", "check_id", "task_id", "started_at"),
    *("wall_time_s", "tree", "clean_room", "cached", "image_digest", "runtime"),
)


def run_result(run: CheckRun) -> RunResult:
    """One check run. Pure."""
    plain: dict[str, Any] = {name: getattr(run, name) for name in _AS_THEY_ARE}
    return RunResult(
        **plain,
        **({} if run.verdict is Verdict.PASSED else _what_went_wrong(run)),
        report=_counts(run.report),
        usage=_usage_of(run.usage),
    )


def answer_of(found: BackgroundRun, shape: type[AnswerT]) -> AnswerT:
    """A background run as the result model of its tool: its progress, or its result. Pure."""
    common = {"run_id": found.run_id, "task_id": found.task_id, "state": found.state}
    if found.state == "running":
        fields = ("check_id", "elapsed_s", "deadline_s", "queue_position")
        return shape(**common, **{name: getattr(found, name) for name in fields}, last_lines=found.last_lines or None)
    if found.verification is not None:
        return shape(**common, **_verified(found.verification))
    return shape(**{**dict(run_result(found.runs[-1])), **common})


def _verified(found: Verification) -> dict[str, Any]:
    runs = tuple(map(run_result, found.runs))
    return {"verified": found.verified, "runs": runs, "tree": found.tree, "differences": found.differences or None}


def _what_went_wrong(run: CheckRun) -> dict[str, Any]:
    return {
        "cause": run.cause,
        "failures": run.failures[:FAILURES] or None,
        "truncated": run.truncated,
        **_tail("stdout", run.stdout_tail, run.stdout_shown_from_byte),
        **_tail("stderr", run.stderr_tail, run.stderr_shown_from_byte),
    }


def _tail(stream: str, text: str, start: int | None) -> dict[str, Any]:
    return {f"{stream}_tail": text, f"{stream}_shown_from_byte": start} if text else {}


def _counts(report: Report | None) -> TestCounts | None:
    return None if report is None else TestCounts(**report.model_dump(exclude={"failed"}))


def _usage_of(usage: Usage) -> RunUsage:
    return RunUsage(**usage.model_dump(exclude={"limits"}))
