"""Runs as shown to an agent: the verdict and the failing tests first, no nulls, no tails for runs that passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from sandbox.agent.outputs import ComparedCheck, RunResult, RunUsage, TestCounts
from sandbox.checks.cause import find_empty_pass
from sandbox.checks.crash import find_crash
from sandbox.checks.missing_packages import describe_missing_packages
from sandbox.models import (
    BackgroundRun,
    CheckComparison,
    CheckRun,
    Exploration,
    FailedTest,
    PreparedLayers,
    Report,
    TestChangeKind,
    Usage,
    Verdict,
    Verification,
)
from sandbox.models.runs import PhaseRun, PhaseVerdict

AnswerT = TypeVar("AnswerT", bound=BaseModel)

FAILURES, FAILURE_TOKENS = 20, 2000
"""Maximum of one run, and of tokens (4 characters each) for them; its report has the total number."""

PHASE_LINES, PHASE_LINE = 15, 200
"""Maximum of lines, and of characters of each, that a failed phase of a launch printed."""

TAIL_BESIDE_FAILURES = 2000
"""Maximum characters of each tail of a run with named failures."""

NOT_BEGUN = (
    "The check has not begun: its image, layers or turn are prepared. It runs on the files as they are when it begins, "
    "so an edit before that is checked too; 'tree' of its result says which files it saw"
)

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
        notes=(*run.notes, *describe_missing_packages([run]), *filter(None, [find_empty_pass(run)])) or None,
        phases=tuple(line for phase in run.phases for line in _describe_phase(phase)) or None,
        report=_test_counts(run.report),
        usage=_usage_of(run.usage),
    )


def _describe_phase(phase: PhaseRun) -> Iterator[str]:
    """What it was; of one that did not pass also the end of what its command printed, cut."""
    yield phase.describe()
    if phase.verdict is not PhaseVerdict.PASSED:
        yield from (f"| {line[:PHASE_LINE]}" for line in phase.output.splitlines()[-PHASE_LINES:])


def build_answer(run: BackgroundRun, model: type[AnswerT]) -> AnswerT:
    """A background run as the result model of its tool: its progress, or its result. Pure."""
    common = {"run_id": run.run_id, "task_id": run.task_id, "state": run.state}
    if run.state == "running":
        fields = {"check_id", "elapsed_s", "deadline_s", "queue_position", "waits_for"} & set(model.model_fields)
        shown = {name: getattr(run, name) for name in fields}
        if "notes" in model.model_fields and run.operation == "check" and run.check_id is None:
            shown["notes"] = (NOT_BEGUN,)
        return model(**common, **shown, last_lines=run.last_lines or None)
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
    compared = None if found.comparison is None else tuple(map(_shorten_comparison, found.comparison.checks))
    return {
        "verified": found.verified,
        "uncommitted": found.uncommitted or None,
        "no_new_failures": found.no_new_failures,
        "comparison": compared,
        "flaky": found.flaky[:FAILURES] or None,
        "runs": runs,
        "tree": found.tree,
        "commit": found.commit,
        "differences": found.differences or None,
    }


def _shorten_comparison(check: CheckComparison) -> ComparedCheck:
    """What an agent acts on: tests that are new and pass are counted only."""
    changes = [change for change in check.changes if change.change is not TestChangeKind.NEW]
    return ComparedCheck(
        check_id=check.check_id,
        before=check.before,
        after=check.after,
        new_failures=check.reasons or None,
        counts={kind.value: count for kind, count in check.counts.items()} or None,
        changes=tuple(changes[:FAILURES]) or None,
    )


def _failure_fields(run: CheckRun) -> dict[str, Any]:
    failures = _fit_failures(run.failures)
    tails = [
        ("stdout", run.stdout_tail, run.stdout_shown_from_byte),
        ("stderr", run.stderr_tail, run.stderr_shown_from_byte),
    ]
    if failures and find_crash(run) is None:  # they say more than the end of the output
        tails = [(name, *_shorten_tail(text, start)) for name, text, start in tails]
    shorter = [text for _, text, _ in tails] != [run.stdout_tail, run.stderr_tail]
    fields: dict[str, Any] = {
        "cause": run.cause,
        "failures": failures or None,
        "truncated": run.truncated or shorter,
        "services": tuple(service.name for service in run.services) or None,
    }
    for tail in tails:
        fields |= _tail_fields(*tail)
    return fields


def _fit_failures(failures: Sequence[FailedTest]) -> tuple[FailedTest, ...]:
    """The first failed tests that fit the budget, at least one."""
    kept, left = list[FailedTest](), FAILURE_TOKENS * 4
    for failure in failures[:FAILURES]:
        left -= len(failure.model_dump_json())
        if left < 0 and kept:
            break
        kept.append(failure)
    return tuple(kept)


def _shorten_tail(text: str, start: int | None) -> tuple[str, int | None]:
    """The end of a tail. Where it starts in the stream is unknown then: shown text differs from the guest's bytes."""
    return (text, start) if len(text) <= TAIL_BESIDE_FAILURES else (text[-TAIL_BESIDE_FAILURES:], None)


def _tail_fields(stream: str, text: str, start: int | None) -> dict[str, Any]:
    return {f"{stream}_tail": text, f"{stream}_shown_from_byte": start} if text else {}


def _test_counts(report: Report | None) -> TestCounts | None:
    return None if report is None else TestCounts(**report.model_dump(exclude={"failed", "kind"}))


def _usage_of(usage: Usage) -> RunUsage:
    return RunUsage(**usage.model_dump(exclude={"limits"}))
