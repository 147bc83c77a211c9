"""Models of the used parts of GitLab's answers (API v4), and their translation to our models. Pure.

Sources: docs.gitlab.com, "Merge requests API", "Jobs API", "Commits API"; lib/api/entities of GitLab's own source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.drafts import without_draft
from sandbox.forges.forge import EXCERPT_BYTES, BranchName, ForgeId, PullWithText, WebUrl, web_url
from sandbox.forges.responses import ForgeResponse, short_line
from sandbox.models import CiCheck, CiState, ObjectId, PullRequest, PullState
from sandbox.text import decode_for_display

_STATES = {
    "opened": PullState.OPEN,
    "locked": PullState.OPEN,  # the merge is in progress
    "merged": PullState.MERGED,
    "closed": PullState.CLOSED,
}
_JOB_STATES = {
    "success": CiState.PASS,
    "skipped": CiState.PASS,
    "manual": CiState.PASS,  # waits for a user to start it
    "failed": CiState.FAIL,
    "canceled": CiState.FAIL,
}
"""All others are pending: created, waiting_for_resource, preparing, pending, running, scheduled, canceling, and states
of later versions."""

_SECTION = re.compile(rb"section_(start|end):\d+:[^\r\n]*\r(\x1b\[0K)?")  # collapsible sections


class Pipeline(ForgeResponse):
    """`sha`: the commit it ran on; with merged results, GitLab's merge of the head into the target."""

    id: ForgeId
    sha: ObjectId
    ref: str | None = None
    status: str
    web_url: str | None = None


class MergeRequest(ForgeResponse):
    """`source_project_id` is null if the fork was deleted; `draft` is missing before 14.8, `head_pipeline` in lists."""

    iid: ForgeId
    web_url: WebUrl
    state: str
    title: str
    description: str | None = None
    draft: bool | None = None
    work_in_progress: bool = False
    source_branch: BranchName
    target_branch: BranchName
    source_project_id: int | None = None
    target_project_id: int
    sha: ObjectId | None = None
    head_pipeline: Pipeline | None = None

    @property
    def is_draft(self) -> bool:
        """From `draft`, or from `work_in_progress` in old versions."""
        return self.work_in_progress if self.draft is None else self.draft

    @property
    def from_fork(self) -> bool:
        """Whether the source branch is in another project."""
        return self.source_project_id != self.target_project_id


class Job(ForgeResponse):
    """A job, a bridge (a job that starts a pipeline elsewhere) or a commit status. They share one sequence of ids."""

    id: ForgeId
    name: str
    status: str
    allow_failure: bool = False
    web_url: str | None = None
    target_url: str | None = None

    @property
    def is_job(self) -> bool:
        """Whether this commit status stands for a pipeline's job: its target is the page of that job."""
        return re.search(rf"/(-/jobs|builds)/{self.id}\Z", self.target_url or "") is not None


class GitLabCommit(ForgeResponse):
    """`parent_ids`: for a merge, the target is first."""

    id: ObjectId
    parent_ids: tuple[ObjectId, ...] = ()


def as_pull_with_text(answer: MergeRequest, *, created: bool = False) -> PullWithText:
    """Translate a merge request. Raises: `forge_error` for an unknown state or a missing head."""
    if answer.state not in _STATES or answer.sha is None:
        raise SandboxError(
            ErrorCode.FORGE_ERROR,
            f"GitLab gave no known state or no head for merge request !{answer.iid}",
            details=short_line(f"state {answer.state}, head {answer.sha}"),
            hint="Try again: GitLab may still be preparing it.",
        )
    pull = PullRequest(
        url=answer.web_url,
        number=answer.iid,
        state=_STATES[answer.state],
        draft=answer.is_draft,
        head=answer.source_branch,
        base=answer.target_branch,
        head_commit=answer.sha,
        created=created,
    )
    return PullWithText(
        pull, without_draft(answer.title) if answer.is_draft else answer.title, answer.description or ""
    )


def newest_request(answers: Iterable[MergeRequest], head: str) -> MergeRequest | None:
    """The open merge request from this branch, else the newest. Those from forks are excluded."""
    ours = _from_branch(answers, head)
    return max(ours, key=lambda a: (_STATES.get(a.state) is PullState.OPEN, a.iid), default=None)


def open_requests(answers: Iterable[MergeRequest], head: str) -> list[MergeRequest]:
    """The merge requests from this branch that are open. One in an unknown state may be open."""
    return [a for a in _from_branch(answers, head) if _STATES.get(a.state, PullState.OPEN) is PullState.OPEN]


def _from_branch(answers: Iterable[MergeRequest], head: str) -> list[MergeRequest]:
    return [a for a in answers if a.source_branch == head and not a.from_fork]


def checks_of(pipeline: Pipeline | None, jobs: Sequence[Job], statuses: Sequence[Job]) -> tuple[CiCheck, ...]:
    """Checks of the pipeline's jobs (bridges included) and of external commit statuses, sorted by name.

    The pipeline itself becomes a check if its state is worse than its jobs': a broken `.gitlab-ci.yml` has no jobs.
    """
    known = {job.id for job in jobs}
    others = [s for s in statuses if s.id not in known and not s.is_job]
    checks = [_as_check(job) for job in (*_latest_of_each_name(jobs), *_latest_of_each_name(others))]
    if pipeline is not None:
        said, state = short_line(pipeline.status), _state(pipeline.status, allow_failure=False)
        if state is not CiState.PASS and all(c.state not in {state, CiState.FAIL} for c in checks):
            checks.append(CiCheck(name="pipeline", state=state, url=web_url(pipeline.web_url), said=said))
    return tuple(sorted(checks, key=lambda c: c.name))


def _latest_of_each_name(jobs: Iterable[Job]) -> list[Job]:
    """The latest job of each name: a retry is a new job, and before 13.5 the old ones were listed too."""
    return list({job.name: job for job in sorted(jobs, key=lambda j: j.id)}.values())


def _as_check(job: Job) -> CiCheck:
    said = short_line(job.status)
    if job.allow_failure and job.status == "failed":
        said = "failed, which is allowed"
    return CiCheck(
        name=short_line(job.name),
        state=_state(job.status, allow_failure=job.allow_failure),
        url=web_url(job.web_url) or web_url(job.target_url),
        said=said,
    )


def _state(status: str, *, allow_failure: bool) -> CiState:
    state = _JOB_STATES.get(status, CiState.PENDING)
    return CiState.PASS if allow_failure and state is CiState.FAIL else state


def excerpt_of(trace: bytes) -> str:
    """The end of a job's log, in whole lines if they are short enough, without terminal sequences."""
    tail = decode_for_display(_SECTION.sub(b"", trace[-4 * EXCERPT_BYTES :])).rstrip().encode()
    if len(tail) <= EXCERPT_BYTES:
        return tail.decode()
    _, newline, lines = tail[-EXCERPT_BYTES:].partition(b"\n")
    return (lines if newline else tail[-EXCERPT_BYTES:]).decode(errors="ignore")
