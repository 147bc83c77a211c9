"""GitLab, gitlab.com and self-hosted, over its REST API (v4), through python-gitlab.

That library follows any next-page link in an answer, with the token: so pages are asked for by number, and our session
cannot reach another origin. Answers are parsed by our own models. API: https://docs.gitlab.com/api/rest/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import gitlab

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.drafts import as_draft, without_draft
from sandbox.forges.forge import (
    CALL_TIMEOUT_S,
    MAX_EXCERPTS,
    MAX_PAGES,
    PAGE_ITEMS,
    Project,
    Proposal,
    PullWithText,
)
from sandbox.forges.gitlab_answers import (
    GitLabCommit,
    Job,
    MergeRequest,
    Pipeline,
    as_pull_with_text,
    checks_of,
    excerpt_of,
    newest_request,
    open_requests,
)
from sandbox.forges.gitlab_failures import translate_errors
from sandbox.forges.http_session import USER_AGENT, build_session, retry_read
from sandbox.forges.read_budget import ReadBudget
from sandbox.forges.recovery import recover_pull
from sandbox.forges.responses import ForgeResponse, parse_list, parse_response, too_long_list
from sandbox.models import CiCheck, CiState, PullRequest

_ResultT = TypeVar("_ResultT")
_AnswerT = TypeVar("_AnswerT", bound=ForgeResponse)


class GitLab:
    """One project on GitLab; see `Forge`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._gitlab = _build_client(project)
        self._api = self._gitlab.projects.get(project.path, lazy=True)
        self._jobs: dict[str, int] = {}  # job ids by the URL of their check
        self._budget = ReadBudget()

    def find(self, head: str) -> PullWithText | None:
        """See `Forge`."""
        answer = newest_request(self._list_from_branch(head), head)
        return as_pull_with_text(answer) if answer else None

    def list_open(self, head: str) -> Sequence[PullRequest]:
        """See `Forge`."""
        return [as_pull_with_text(answer).pull for answer in open_requests(self._list_from_branch(head), head)]

    def _list_from_branch(self, head: str) -> Sequence[MergeRequest]:
        """Those of branches of that name, also in forks."""
        self._budget.begin()
        asked = {"source_branch": head, "state": "all", "order_by": "created_at", "sort": "desc"}
        return self._list_all(MergeRequest, self._api.mergerequests.path, asked)

    def open(self, proposal: Proposal) -> PullWithText:
        """See `Forge`. GitLab also opens a merge request without differences, so there is no `conflict` for that."""
        texts = {
            "source_branch": proposal.head,
            "target_branch": proposal.base,
            "title": as_draft(proposal.title) if proposal.draft else proposal.title,
            "description": proposal.body,
        }
        try:
            answer = self._request(lambda: self._api.mergerequests.create(texts).asdict())
        except SandboxError as error:
            return recover_pull(error, self, proposal.head)
        return as_pull_with_text(parse_response(MergeRequest, answer), created=True)

    def replace_body(self, number: int, body: str) -> None:
        """See `Forge`."""
        self._budget.begin()
        self._require_own_request(number)
        self._request(lambda: self._api.mergerequests.update(number, {"description": body}))

    def make_ready(self, number: int) -> None:
        """See `Forge`. On GitLab the title makes a draft."""
        self._budget.begin()
        answer = self._require_own_request(number)
        if not answer.is_draft:
            return
        title = without_draft(answer.title) or answer.source_branch
        changed = self._request(lambda: self._api.mergerequests.update(number, {"title": title}))
        if parse_response(MergeRequest, changed).is_draft:
            raise SandboxError(
                ErrorCode.FORGE_ERROR,
                f"Merge request !{number} is still a draft",
                hint="Mark it as ready on its page.",
            )

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        """See `Forge`. Uses the merge request's pipeline if it ran on this commit, else the commit's newest one."""
        self._budget.begin()
        pipeline = self._pipeline(commit, self._require_own_request(number))
        jobs: list[Job] = []
        if pipeline is not None:
            run = self._api.pipelines.get(pipeline.id, lazy=True)
            jobs += self._list_all(Job, run.jobs.path)
            jobs += self._list_all(Job, run.bridges.path)
        page = self._api.commits.get(commit, lazy=True)
        statuses = self._list_all(Job, page.statuses.path)
        self._jobs |= {job.web_url: job.id for job in jobs if job.web_url}
        return checks_of(pipeline, jobs, statuses)

    @property
    def unseen(self) -> str:
        """See `Forge`. Read access to the project includes all checks."""
        return ""

    def add_excerpts(self, checks: Sequence[CiCheck]) -> Sequence[CiCheck]:
        """See `Forge`. A log that is erased, hidden or too large gives an empty excerpt."""
        self._budget.begin()
        failed = [check for check in checks if check.state is CiState.FAIL and check.url in self._jobs]
        logs = {id(check): self._excerpt(self._jobs[str(check.url)]) for check in failed[:MAX_EXCERPTS]}
        return tuple(c.model_copy(update={"excerpt": logs[id(c)]}) if id(c) in logs else c for c in checks)

    def close(self) -> None:
        """See `Forge`."""
        self._gitlab.session.close()

    def _excerpt(self, job: int) -> str:
        log = self._api.jobs.get(job, lazy=True)
        try:
            return excerpt_of(self._read(log.trace))
        except SandboxError:
            return ""

    def _pipeline(self, commit: str, request: MergeRequest) -> Pipeline | None:
        """Find the pipeline of this commit. The head pipeline may still be that of an earlier commit."""
        head = request.head_pipeline
        if head is not None and (head.sha == commit or self._is_merge_of(head, commit)):
            return head
        asked = {"sha": commit, "order_by": "id", "sort": "desc"}
        try:
            pipelines = self._list_all(Pipeline, self._api.pipelines.path, asked)
        except SandboxError as error:
            if head is None and error.code is ErrorCode.AUTH_FAILED:
                return None  # GitLab's answer when CI is disabled; external commit statuses may still exist
            raise
        refs = {request.source_branch, f"refs/merge-requests/{request.iid}/head"}
        return next((p for p in pipelines if p.sha == commit and p.ref in refs), None)

    def _is_merge_of(self, pipeline: Pipeline, commit: str) -> bool:
        """Whether the pipeline ran on merged results: on GitLab's own merge of this commit into the target."""
        if not (pipeline.ref or "").startswith("refs/merge-requests/"):
            return False
        answer = self._read(lambda: self._api.commits.get(pipeline.sha).asdict())
        return commit in parse_response(GitLabCommit, answer).parent_ids

    def _require_own_request(self, number: int) -> MergeRequest:
        """Read a merge request between branches of this project. Raises: `forge_unsupported` for a fork's."""
        answer = self._read(lambda: self._api.mergerequests.get(number).asdict())
        read = parse_response(MergeRequest, answer)
        if read.from_fork:
            raise SandboxError(
                ErrorCode.FORGE_UNSUPPORTED,
                f"Merge request !{number} comes from a fork",
                hint="Only merge requests between branches of the same project are supported.",
            )
        return read

    def _list_all(self, kind: type[_AnswerT], path: str, parameters: Mapping[str, str] | None = None) -> list[_AnswerT]:
        """All items of a list. Pages are counted here: python-gitlab follows the links of pages that have no item, each
        from within the request before. Raises: `forge_error` for a list of more than `MAX_PAGES` pages.
        """
        found: list[_AnswerT] = []
        for number in range(1, MAX_PAGES + 1):
            asked = {**(parameters or {}), "per_page": PAGE_ITEMS, "page": number}
            page: Any = self._read(partial(self._gitlab.http_get, path, query_data=asked, raw=True))
            self._budget.count_answer(len(page.content))
            found += [parse_response(kind, item) for item in parse_list(page)]
            if "next" not in page.links:
                return found
        raise too_long_list(MAX_PAGES * PAGE_ITEMS, kind.__name__)

    def _read(self, ask: Callable[[], _ResultT]) -> _ResultT:
        return retry_read(lambda: self._request(ask, self._budget.limit_request()), self._budget.left_s)

    def _request(self, ask: Callable[[], _ResultT], limit_s: float = CALL_TIMEOUT_S) -> _ResultT:
        self._gitlab.timeout = limit_s
        with translate_errors(self._project):
            return ask()


def _build_client(project: Project) -> gitlab.Gitlab:
    """git's user name selects the kind of token. `oauth2` is sent as `Bearer`, which works for any access token."""
    session = build_session(
        project.credential.ca_file, only_origin=project.api_url, conditional=True, proxy=project.proxy
    )
    secret, user = project.credential.secret.get_secret_value() or None, project.credential.username
    return gitlab.Gitlab(
        project.api_url.removesuffix("/api/v4"),
        oauth_token=secret if user == "oauth2" else None,
        job_token=secret if user == "gitlab-ci-token" else None,
        private_token=secret if user not in {"oauth2", "gitlab-ci-token"} else None,
        timeout=CALL_TIMEOUT_S,
        per_page=PAGE_ITEMS,
        user_agent=USER_AGENT,
        keep_base_url=True,
        session=session,
    )
