"""Runs as shown to an agent: the verdict and the failing tests first, no nulls, no tails for runs that passed."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from sandbox.agent.outputs import RunResult, RunUsage, TestCounts
from sandbox.models import BackgroundRun, CheckRun, Exploration, PreparedLayers, Report, Usage, Verdict, Verification

AnswerT = TypeVar("AnswerT", bound=BaseModel)

FAILURES = 20
"""Maximum of one run; its report has the total number."""

_COPIED_FIELDS = (
    *("verdict", "exit_code", "signal", "stdout_bytes", "stderr_bytes", "run_id", "check_id", "task_id", "started_at"),
    *("wall_time_s", "tree", "clean_room", "guest_user", "cached", "image_digest", "runtime"),
)


def run_result(run: CheckRun) -> RunResult:
    """One check run. Pure."""
    plain: dict[str, Any] = {name: getattr(run, name) for name in _COPIED_FIELDS}
    return RunResult(
        **plain,
        **({} if run.verdict is Verdict.PASSED else _failure_fields(run)),
        notes=run.notes or None,
        phases=tuple(phase.describe() for phase in run.phases) or None,
        report=_test_counts(run.report),
        usage=_usage_of(run.usage),
    )


def build_answer(run: BackgroundRun, model: type[AnswerT]) -> AnswerT:
    """A background run as the result model of its tool: its progress, or its result. Pure."""
    common = {"run_id": run.run_id, "task_id": run.task_id, "state": run.state}
    if run.state == "running":
        fields = {"check_id", "elapsed_s", "deadline_s", "queue_position"} & set(model.model_fields)
        return model(**common, **{name: getattr(run, name) for name in fields}, last_lines=run.last_lines or None)
    if run.operation == "layers-build":
        return model(**common, **_preparation_fields(run.prepared))
    if run.operation == "explore":
        return model(**common, **_exploration_fields(run.exploration, set(model.model_fields)))
    if run.verification is not None:
        return model(**common, **_verification_fields(run.verification))
    return model(**{**dict(run_result(run.runs[-1])), **common})


def _preparation_fields(found: PreparedLayers | None) -> dict[str, Any]:
    if found is None:
        return {"verdict": Verdict.KILLED}
    return {"layers": found.layers, "refused": found.refused or None, "commit": found.commit}


def _exploration_fields(found: Exploration | None, names: set[str]) -> dict[str, Any]:
    """The fields of the model that an exploration has."""
    if found is None:
        return {}
    return {name: value for name, value in dict(found).items() if name in names - {"task_id"} and value != ""}


def _verification_fields(found: Verification) -> dict[str, Any]:
    runs = tuple(map(run_result, found.runs))
    return {"verified": found.verified, "runs": runs, "tree": found.tree, "differences": found.differences or None}


def _failure_fields(run: CheckRun) -> dict[str, Any]:
    return {
        "cause": run.cause,
        "failures": run.failures[:FAILURES] or None,
        "truncated": run.truncated,
        "services": tuple(service.name for service in run.services) or None,
        **_tail_fields("stdout", run.stdout_tail, run.stdout_shown_from_byte),
        **_tail_fields("stderr", run.stderr_tail, run.stderr_shown_from_byte),
    }


def _tail_fields(stream: str, text: str, start: int | None) -> dict[str, Any]:
    return {f"{stream}_tail": text, f"{stream}_shown_from_byte": start} if text else {}


def _test_counts(report: Report | None) -> TestCounts | None:
    return None if report is None else TestCounts(**report.model_dump(exclude={"failed"}))


def _usage_of(usage: Usage) -> RunUsage:
    return RunUsage(**usage.model_dump(exclude={"limits"}))
