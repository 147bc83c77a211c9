"""Models of the used parts of GitHub's answers, and their translation to our models. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, PositiveInt

from sandbox.forges.forge import EXCERPT_BYTES, Found, WebUrl, web_url
from sandbox.forges.responses import Theirs, parsed, unusable, word
from sandbox.models import CiCheck, CiState, ObjectId, PullRequest, PullState
from sandbox.text import neutral

_PASS = frozenset({"success", "neutral", "skipped"})
_FAIL = frozenset({"failure", "error", "cancelled", "timed_out", "action_required", "startup_failure"})


class _Repo(Theirs):
    full_name: str


class _Branch(Theirs):
    ref: str
    sha: ObjectId
    repo: _Repo | None  # None: the fork is gone


class Pull(Theirs):
    number: PositiveInt
    node_id: str = ""
    html_url: WebUrl
    state: Literal["open", "closed"]
    draft: bool = False
    merged_at: str | None = None
    title: str
    body: str | None = None
    head: _Branch
    base: _Branch


class _CheckRun(Theirs):
    """A check run, or a job of Actions, which has the same fields."""

    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    details_url: str | None = None


class _CheckRuns(Theirs):
    check_runs: tuple[_CheckRun, ...]


class _Jobs(Theirs):
    jobs: tuple[_CheckRun, ...]


class WorkflowRun(Theirs):
    """A run of a workflow. A run that cannot start has no jobs."""

    id: int
    name: str | None = None
    workflow_id: int
    run_number: int
    event: str
    status: str | None = None
    conclusion: str | None = None
    html_url: str | None = None


class _WorkflowRuns(Theirs):
    workflow_runs: tuple[WorkflowRun, ...]


class _Readied(Theirs):
    """GraphQL: the pull request after it was marked as ready."""

    is_draft: bool = Field(alias="isDraft")


class Readying(Theirs):
    """`pull_request`: None if there was no change."""

    pull_request: _Readied | None = Field(alias="pullRequest", default=None)


class _CommitStatus(Theirs):
    context: str
    state: str
    target_url: str | None = None


class _Combined(Theirs):
    statuses: tuple[_CommitStatus, ...]


def pulls_of(answer: Any) -> tuple[Pull, ...]:
    """A list of pull requests."""
    if not isinstance(answer, list):
        raise unusable("expected a list")
    return tuple(parsed(Pull, item) for item in answer)


def runs_of(answer: Any) -> tuple[_CheckRun, ...]:
    """The check runs of a page."""
    return parsed(_CheckRuns, answer).check_runs


def jobs_of(answer: Any) -> tuple[_CheckRun, ...]:
    """The jobs of a page."""
    return parsed(_Jobs, answer).jobs


def workflow_runs_of(answer: Any) -> tuple[WorkflowRun, ...]:
    """The workflow runs of a page."""
    return parsed(_WorkflowRuns, answer).workflow_runs


def latest(runs: Iterable[WorkflowRun]) -> tuple[WorkflowRun, ...]:
    """The last run of each workflow and event: a new run replaces the earlier one."""
    return tuple({(r.workflow_id, r.event): r for r in sorted(runs, key=lambda r: r.run_number)}.values())


def statuses_of(answer: Any) -> tuple[_CommitStatus, ...]:
    """The newest status of each context."""
    return parsed(_Combined, answer).statuses


def as_found(pull: Pull) -> Found:
    """Translate a pull request."""
    state = PullState.MERGED if pull.merged_at else PullState(pull.state)
    known = PullRequest(
        url=pull.html_url,
        number=pull.number,
        state=state,
        draft=pull.draft,
        head=pull.head.ref,
        base=pull.base.ref,
        head_commit=pull.head.sha,
    )
    return Found(known, pull.title, pull.body or "")


def check_of_run(run: _CheckRun) -> CiCheck:
    """Translate a check run. Its state is the conclusion if it has one, else the status."""
    said = run.conclusion if run.status == "completed" and run.conclusion else run.status
    return CiCheck(
        name=word(run.name),
        state=_state(said),
        url=web_url(run.html_url) or web_url(run.details_url),
        said=word(said),
    )


def check_of_workflow(run: WorkflowRun) -> CiCheck:
    """Translate a workflow run that has no jobs."""
    name, said = word(run.name or "workflow"), run.conclusion or run.status or ""
    return CiCheck(name=name, state=_state(said), url=web_url(run.html_url), said=word(said))


def check_of_status(status: _CommitStatus) -> CiCheck:
    """Translate a commit status."""
    said = word(status.state)
    return CiCheck(name=word(status.context), state=_state(status.state), url=web_url(status.target_url), said=said)


def _state(said: str) -> CiState:
    if said in _PASS:
        return CiState.PASS
    return CiState.FAIL if said in _FAIL else CiState.PENDING


def excerpt_of(notes: Any) -> str:
    """The annotations of a check run, one per line: path, line, message."""
    lines = []
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, dict) and note.get("annotation_level") in {"failure", "warning"}:
            lines.append(f"{note.get('path')}:{note.get('start_line')}: {note.get('message')}")
    return neutral("\n".join(lines))[:EXCERPT_BYTES]


_STAMP = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT[\d:.]+Z ", re.MULTILINE)
_BEFORE_ERROR = 40
"""Lines of a log up to its last error. The lines after it are mostly GitHub's cleanup."""


def excerpt_of_log(text: str) -> str:
    """The lines up to the last error of a job's log, without timestamps; the end of the log if it has no error."""
    lines = _STAMP.sub("", text).splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("##[error]")]
    end = errors[-1] + 1 if errors else len(lines)
    return neutral("\n".join(lines[max(0, end - _BEFORE_ERROR) : end]))[-EXCERPT_BYTES:]
