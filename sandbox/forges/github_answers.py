"""Models of the used parts of GitHub's answers, and their translation to our models. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from sandbox.forges.forge import EXCERPT_BYTES, BranchName, ForgeId, PullWithText, WebUrl, web_url
from sandbox.forges.responses import ForgeResponse, parse_response, require_list, short_line
from sandbox.models import CiCheck, CiState, ObjectId, PullRequest, PullState
from sandbox.text import neutralise

_PASS = frozenset({"success", "neutral", "skipped"})
_FAIL = frozenset({"failure", "error", "cancelled", "timed_out", "action_required", "startup_failure"})


MARK_READY = """mutation($input: MarkPullRequestReadyForReviewInput!) {
  markPullRequestReadyForReview(input: $input) { pullRequest { isDraft } }
}"""
"""The request of GraphQL that `is_ready` reads the answer to."""


class _Repo(ForgeResponse):
    full_name: str


class _Branch(ForgeResponse):
    ref: BranchName
    sha: ObjectId
    repo: _Repo | None  # None: the fork is gone


class Pull(ForgeResponse):
    number: Annotated[ForgeId, Field(gt=0)]
    node_id: str = ""
    html_url: WebUrl
    state: Literal["open", "closed"]
    draft: bool = False
    merged_at: str | None = None
    title: str
    body: str | None = None
    head: _Branch
    base: _Branch


class _GitHubCheckRun(ForgeResponse):
    """A check run, or a job of Actions, which has the same fields."""

    id: ForgeId
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    details_url: str | None = None


class _GitHubCheckRuns(ForgeResponse):
    check_runs: tuple[_GitHubCheckRun, ...]


class _Jobs(ForgeResponse):
    jobs: tuple[_GitHubCheckRun, ...]


class WorkflowRun(ForgeResponse):
    """A run of a workflow. A run that cannot start has no jobs."""

    id: ForgeId
    name: str | None = None
    workflow_id: int
    run_number: int
    event: str
    status: str | None = None
    conclusion: str | None = None
    html_url: str | None = None


class _WorkflowRuns(ForgeResponse):
    workflow_runs: tuple[WorkflowRun, ...]


class _ReadyPull(ForgeResponse):
    """GraphQL: the pull request after it was marked as ready."""

    is_draft: bool = Field(alias="isDraft")


class _ReadyMutation(ForgeResponse):
    """`pull_request`: None if there was no change."""

    pull_request: _ReadyPull | None = Field(alias="pullRequest", default=None)


class _ReadyData(ForgeResponse):
    mutation: _ReadyMutation | None = Field(alias="markPullRequestReadyForReview", default=None)


class _ReadyAnswer(ForgeResponse):
    """The answer to `MARK_READY`."""

    data: _ReadyData | None = None


class _CommitStatus(ForgeResponse):
    context: str
    state: str
    target_url: str | None = None


class _Combined(ForgeResponse):
    statuses: tuple[_CommitStatus, ...]


def total_of(page: Any) -> int:
    """How many items the list of a page has on all pages; 0 if the page does not say so."""
    total = page.get("total_count") if isinstance(page, dict) else None
    return total if isinstance(total, int) else 0


def pulls_of(answer: Any) -> tuple[Pull, ...]:
    """A list of pull requests."""
    return tuple(parse_response(Pull, item) for item in require_list(answer))


def is_ready(answer: Any) -> bool:
    """Whether the answer to `MARK_READY` says that the pull request is no draft any more."""
    data = parse_response(_ReadyAnswer, answer).data
    pull = data.mutation.pull_request if data and data.mutation else None
    return pull is not None and not pull.is_draft


def runs_of(answer: Any) -> tuple[_GitHubCheckRun, ...]:
    """The check runs of a page."""
    return parse_response(_GitHubCheckRuns, answer).check_runs


def jobs_of(answer: Any) -> tuple[_GitHubCheckRun, ...]:
    """The jobs of a page."""
    return parse_response(_Jobs, answer).jobs


def workflow_runs_of(answer: Any) -> tuple[WorkflowRun, ...]:
    """The workflow runs of a page."""
    return parse_response(_WorkflowRuns, answer).workflow_runs


def latest_runs(runs: Iterable[WorkflowRun]) -> tuple[WorkflowRun, ...]:
    """The last run of each workflow and event: a new run replaces the earlier one."""
    return tuple({(r.workflow_id, r.event): r for r in sorted(runs, key=lambda r: r.run_number)}.values())


def statuses_of(answer: Any) -> tuple[_CommitStatus, ...]:
    """The newest status of each context."""
    return parse_response(_Combined, answer).statuses


def as_pull_with_text(pull: Pull, *, created: bool = False) -> PullWithText:
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
        created=created,
    )
    return PullWithText(known, pull.title, pull.body or "")


def check_of_run(run: _GitHubCheckRun) -> CiCheck:
    """Translate a check run. Its state is the conclusion if it has one, else the status."""
    said = run.conclusion if run.status == "completed" and run.conclusion else run.status
    return CiCheck(
        name=short_line(run.name),
        state=_state(said),
        url=web_url(run.html_url) or web_url(run.details_url),
        said=short_line(said),
    )


def check_of_workflow(run: WorkflowRun) -> CiCheck:
    """Translate a workflow run that has no jobs."""
    name, said = short_line(run.name or "workflow"), run.conclusion or run.status or ""
    return CiCheck(name=name, state=_state(said), url=web_url(run.html_url), said=short_line(said))


def check_of_status(status: _CommitStatus) -> CiCheck:
    """Translate a commit status."""
    said = short_line(status.state)
    return CiCheck(
        name=short_line(status.context), state=_state(status.state), url=web_url(status.target_url), said=said
    )


def _state(said: str) -> CiState:
    if said in _PASS:
        return CiState.PASS
    return CiState.FAIL if said in _FAIL else CiState.PENDING


def excerpt_of_annotations(notes: Any) -> str:
    """The annotations of a check run, one per line: path, line, message."""
    lines = []
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, dict) and note.get("annotation_level") in {"failure", "warning"}:
            lines.append(f"{note.get('path')}:{note.get('start_line')}: {note.get('message')}")
    return neutralise("\n".join(lines))[:EXCERPT_BYTES]


_TIMESTAMP = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT[\d:.]+Z ", re.MULTILINE)
_BEFORE_ERROR = 40
"""Lines of a log up to its last error. The lines after it are mostly GitHub's cleanup."""


def excerpt_of_log(text: str) -> str:
    """The lines up to the last error of a job's log, without timestamps; the end of the log if it has no error."""
    lines = _TIMESTAMP.sub("", text).splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("##[error]")]
    end = errors[-1] + 1 if errors else len(lines)
    return neutralise("\n".join(lines[max(0, end - _BEFORE_ERROR) : end]))[-EXCERPT_BYTES:]
