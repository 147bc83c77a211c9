"""What GitLab's API (v4) answers, as far as it is used, and what that means here. Pure.

Sources: docs.gitlab.com, "Merge requests API", "Jobs API", "Commits API"; lib/api/entities of GitLab's own source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.drafts import without_draft
from sandbox.forges.forge import EXCERPT_BYTES, Found, WebUrl, web_url
from sandbox.forges.responses import Theirs, word
from sandbox.models import CiCheck, CiState, ObjectId, PullRequest, PullState
from sandbox.text import shown

_STATES = {
    "opened": PullState.OPEN,
    "locked": PullState.OPEN,  # while it is being merged
    "merged": PullState.MERGED,
    "closed": PullState.CLOSED,
}
_JOB_STATES = {
    "success": CiState.PASS,
    "skipped": CiState.PASS,
    "manual": CiState.PASS,  # starts when a person says so
    "failed": CiState.FAIL,
    "canceled": CiState.FAIL,
}
"""All others are on their way: created, waiting_for_resource, preparing, pending, running, scheduled, canceling, and
those that later versions bring."""

_SECTION = re.compile(rb"section_(start|end):\d+:[^\r\n]*\r(\x1b\[0K)?")  # folds lines in GitLab's own view


class Pipeline(Theirs):
    """`sha`: the commit it ran on, with merged results one that merges the head into the target."""

    id: int
    sha: ObjectId
    ref: str | None = None
    status: str
    web_url: str | None = None


class MergeRequest(Theirs):
    """`source_project_id` is null when a fork is gone; `draft` is missing before 14.8, `head_pipeline` in lists."""

    iid: int
    web_url: WebUrl
    state: str
    title: str
    description: str | None = None
    draft: bool | None = None
    work_in_progress: bool = False
    source_branch: str
    target_branch: str
    source_project_id: int | None = None
    target_project_id: int
    sha: ObjectId | None = None
    head_pipeline: Pipeline | None = None

    @property
    def is_draft(self) -> bool:
        """By whichever field this version has."""
        return self.work_in_progress if self.draft is None else self.draft

    @property
    def from_fork(self) -> bool:
        """Whether its branch is another project's."""
        return self.source_project_id != self.target_project_id


class Job(Theirs):
    """A job, a bridge (one that starts a pipeline elsewhere) or a commit status, which share one row of ids."""

    id: int
    name: str
    status: str
    allow_failure: bool = False
    web_url: str | None = None
    target_url: str | None = None

    @property
    def is_job(self) -> bool:
        """A commit status that stands for a job of some pipeline: its page is that of the job."""
        return re.search(rf"/(-/jobs|builds)/{self.id}$", self.target_url or "") is not None


class Commit(Theirs):
    """`parent_ids`: of a merge the target first."""

    id: ObjectId
    parent_ids: tuple[ObjectId, ...] = ()


def found(answer: MergeRequest, *, created: bool = False) -> Found:
    """The merge request in our words. Raises: `forge_error` for a state or a head that we cannot tell."""
    if answer.state not in _STATES or answer.sha is None:
        raise SandboxError(
            ErrorCode.FORGE_ERROR,
            f"GitLab does not tell the state of merge request !{answer.iid}",
            details=word(f"state {answer.state}, head {answer.sha}"),
            hint="Try again: it may still be preparing it.",
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
    return Found(pull, without_draft(answer.title) if answer.is_draft else answer.title, answer.description or "")


def newest(answers: Iterable[MergeRequest], head: str) -> MergeRequest | None:
    """The open one or else the newest of those from this branch that are no fork's."""
    ours = [a for a in answers if a.source_branch == head and not a.from_fork]
    return max(ours, key=lambda a: (_STATES.get(a.state) is PullState.OPEN, a.iid), default=None)


def checks_of(pipeline: Pipeline | None, jobs: Sequence[Job], statuses: Sequence[Job]) -> tuple[CiCheck, ...]:
    """Jobs (bridges among them) of the pipeline, and what others say of the commit, sorted by name.

    The pipeline itself is a check where it says worse than its parts: a broken `.gitlab-ci.yml` fails without a job.
    """
    known = {job.id for job in jobs}
    others = [s for s in statuses if s.id not in known and not s.is_job]
    checks = [_check(job) for job in (*_latest(jobs), *_latest(others))]
    if pipeline is not None:
        said, state = word(pipeline.status), _state(pipeline.status, allow_failure=False)
        if state is not CiState.PASS and all(c.state not in {state, CiState.FAIL} for c in checks):
            checks.append(CiCheck(name="pipeline", state=state, url=web_url(pipeline.web_url), said=said))
    return tuple(sorted(checks, key=lambda c: c.name))


def _latest(jobs: Iterable[Job]) -> list[Job]:
    """One of each name: a retry is a new job, and before 13.5 the old ones were listed too."""
    return list({job.name: job for job in sorted(jobs, key=lambda j: j.id)}.values())


def _check(job: Job) -> CiCheck:
    said = word(job.status)
    if job.allow_failure and job.status == "failed":
        said = "failed, which is allowed"
    return CiCheck(
        name=word(job.name),
        state=_state(job.status, allow_failure=job.allow_failure),
        url=web_url(job.web_url) or web_url(job.target_url),
        said=said,
    )


def _state(status: str, *, allow_failure: bool) -> CiState:
    state = _JOB_STATES.get(status, CiState.PENDING)
    return CiState.PASS if allow_failure and state is CiState.FAIL else state


def excerpt_of(trace: bytes) -> str:
    """The end of a job's log: whole lines where they are short enough, and nothing that a terminal would obey."""
    tail = shown(_SECTION.sub(b"", trace[-4 * EXCERPT_BYTES :])).rstrip().encode()
    if len(tail) <= EXCERPT_BYTES:
        return tail.decode()
    _, newline, lines = tail[-EXCERPT_BYTES:].partition(b"\n")
    return (lines if newline else tail[-EXCERPT_BYTES:]).decode(errors="ignore")
