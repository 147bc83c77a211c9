"""GitHub: github.com and Enterprise Server, over the REST API, and GraphQL for the one operation that REST lacks.

Requests go through our own session. No URL of an answer is followed, except that of a log: paths are built here.
API: https://docs.github.com/en/rest (version 2022-11-28).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import requests

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import CALL_TIMEOUT_S, MAX_EXCERPTS, MAX_PAGES, PAGE_ITEMS, Project, Proposal, PullWithText
from sandbox.forges.github_answers import (
    MARK_READY,
    Pull,
    as_pull_with_text,
    check_of_run,
    check_of_status,
    check_of_workflow,
    excerpt_of_annotations,
    excerpt_of_log,
    is_ready,
    jobs_of,
    latest_runs,
    pulls_of,
    runs_of,
    statuses_of,
    total_of,
    workflow_runs_of,
)
from sandbox.forges.github_failures import require_data, translate_errors
from sandbox.forges.http_session import build_session, fetch_redirected, retry_read
from sandbox.forges.read_budget import ReadBudget
from sandbox.forges.recovery import recover_pull
from sandbox.forges.responses import parse_json, parse_response, too_long_list
from sandbox.models import CiCheck, CiState, PullRequest

_API_VERSION = "2022-11-28"
_JOB = re.compile(r"/actions/runs/\d+/job/(\d+)(?:\Z|[?#])")  # pages of jobs; below: of jobs and other check runs
_RUN = re.compile(r"/(?:job|runs)/(\d+)(?:\Z|[?#])")
_LOGS = (".actions.githubusercontent.com", ".blob.core.windows.net")
"""Hosts of github.com's logs: https://docs.github.com/en/actions, requirements of self-hosted runners."""


class GitHub:
    """One repository on GitHub; see `forge.Forge`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._session = _build_api_session(project)
        self._unseen = ""
        self._budget = ReadBudget()

    def close(self) -> None:
        self._session.close()

    def find(self, head: str) -> PullWithText | None:
        ours = self._list_from_branch(head)
        newest = next((p for p in ours if p.state == "open"), ours[0] if ours else None)
        return as_pull_with_text(newest) if newest else None

    def list_open(self, head: str) -> Sequence[PullRequest]:
        return [as_pull_with_text(p).pull for p in self._list_from_branch(head) if p.state == "open"]

    def _list_from_branch(self, head: str) -> list[Pull]:
        """All pull requests from a branch of this project, newest first."""
        self._budget.begin()
        owner = self._project.path.split("/")[0]
        asked = {"head": f"{owner}:{head}", "state": "all", "sort": "created", "direction": "desc"}
        return [p for p in self._list_all("/pulls", asked, pulls_of) if self._is_from_project(p, head)]

    def _is_from_project(self, pull: Pull, head: str) -> bool:
        """Servers that ignore the filter list all pull requests; a fork may have a branch of the same name."""
        path = self._project.path.lower()
        return pull.head.ref == head and pull.head.repo is not None and pull.head.repo.full_name.lower() == path

    def open(self, proposal: Proposal) -> PullWithText:
        wanted = {
            "title": proposal.title,
            "body": proposal.body,
            "head": proposal.head,
            "base": proposal.base,
            "draft": proposal.draft,
            "maintainer_can_modify": False,  # has an effect on forks only
        }
        try:
            made = parse_response(Pull, self._request("POST", "/pulls", wanted))
        except SandboxError as error:
            return recover_pull(error, self, proposal.head)
        return as_pull_with_text(made, created=True)

    def replace_body(self, number: int, body: str) -> None:
        self._request("PATCH", f"/pulls/{number}", {"body": body})

    def make_ready(self, number: int) -> None:
        self._budget.begin()
        pull = parse_response(Pull, self._read(f"/pulls/{number}", {}))
        if pull.draft and not is_ready(self._request_graphql(MARK_READY, {"pullRequestId": pull.node_id})):
            raise SandboxError(
                ErrorCode.FORGE_ERROR,
                f"Pull request {number} is still a draft",
                hint="The token may lack the permission. Mark the pull request as ready on the forge.",
            )

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        del number  # on GitHub all checks belong to the commit
        self._budget.begin()
        statuses = self._list_all(f"/commits/{commit}/status", {}, statuses_of)
        found = [*self._list_runs(commit), *map(check_of_status, statuses)]
        return tuple(sorted(found, key=lambda check: (check.name, check.url or "")))

    @property
    def unseen(self) -> str:
        return self._unseen

    def _list_runs(self, commit: str) -> list[CiCheck]:
        """List check runs. If the token may not read them (no fine-grained token may), list jobs of GitHub Actions."""
        self._unseen = ""
        try:
            return [
                check_of_run(r) for r in self._list_all(f"/commits/{commit}/check-runs", {"filter": "latest"}, runs_of)
            ]
        except SandboxError as error:
            if error.code is not ErrorCode.AUTH_FAILED:
                raise
        found: list[CiCheck] = []
        for run in latest_runs(self._list_all("/actions/runs", {"head_sha": commit}, workflow_runs_of)):
            jobs = self._list_all(f"/actions/runs/{run.id}/jobs", {"filter": "latest"}, jobs_of)
            found += map(check_of_run, jobs) if jobs else [check_of_workflow(run)]
        self._unseen = "The token may not read check runs: only GitHub Actions and commit statuses are listed."
        return found

    def add_excerpts(self, checks: Sequence[CiCheck]) -> Sequence[CiCheck]:
        self._budget.begin()
        failed = [check for check in checks if check.state is CiState.FAIL][:MAX_EXCERPTS]
        return tuple(self._add_excerpt(check) if check in failed else check for check in checks)

    def _add_excerpt(self, check: CiCheck) -> CiCheck:
        """Add an excerpt to a check. On any failure the check is returned without one."""
        job, run = _JOB.search(check.url or ""), _RUN.search(check.url or "")
        if job is not None and (text := self._fetch_log(job[1])):
            return check.model_copy(update={"excerpt": excerpt_of_log(text)})
        if run is None:
            return check
        try:
            notes = self._read(f"/check-runs/{run[1]}/annotations", {"per_page": "20"})
        except SandboxError:
            return check
        return check.model_copy(update={"excerpt": excerpt_of_annotations(notes)})

    def _fetch_log(self, job: str) -> str:
        """The log of a job of GitHub Actions. It is on another host: fetched without our token, from known hosts."""
        url, ca_file = self._url(f"/actions/jobs/{job}/logs"), self._project.credential.ca_file
        try:
            with closing(build_session(ca_file, proxy=self._project.proxy)) as session, translate_errors(self._project):
                headers, limit = _authorization(self._project), self._budget.limit_request
                return fetch_redirected(session, url, headers, self._is_log_host, limit)
        except SandboxError:
            return ""

    def _is_log_host(self, hostname: str) -> bool:
        return hostname in {self._project.hostname, urlsplit(self._project.api_url).hostname} or hostname.endswith(
            _LOGS
        )

    def _list_all(
        self, path: str, parameters: Mapping[str, str], items: Callable[[Any], Sequence[Any]]
    ) -> tuple[Any, ...]:
        """All items of a list. Raises: `forge_error` for a list of more than `MAX_PAGES` pages.

        Servers may give shorter pages than asked for: the answer says whether a page is the last one. The next one is
        asked for by its number, whatever the address is that the server names.
        """
        found: list[Any] = []
        for number in range(1, MAX_PAGES + 1):
            page = self._fetch(path, {**parameters, "per_page": str(PAGE_ITEMS), "page": str(number)})
            document = parse_json(page)
            got = items(document)
            found += got
            is_counted_whole = not got or len(found) >= total_of(document)
            if "next" not in page.links and len(got) < PAGE_ITEMS and is_counted_whole:
                return tuple(found)
        raise too_long_list(MAX_PAGES * PAGE_ITEMS, path)

    def _read(self, path: str, parameters: Mapping[str, str]) -> Any:
        return parse_json(self._fetch(path, parameters))

    def _fetch(self, path: str, parameters: Mapping[str, str]) -> requests.Response:
        return retry_read(lambda: self._send("GET", path, parameters), self._budget.left_s)

    def _request(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        return parse_json(self._send(method, path, body=body))

    def _send(
        self, method: str, path: str, parameters: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> requests.Response:
        limit_s = self._budget.limit_request() if method == "GET" else CALL_TIMEOUT_S
        with translate_errors(self._project):
            answer = self._session.request(method, self._url(path), params=parameters, json=body, timeout=limit_s)
            if method == "GET":
                self._budget.count_answer(len(answer.content))
            return answer

    def _request_graphql(self, query: str, asked: Mapping[str, Any]) -> Any:
        """On github.com the path is `/graphql`; on Enterprise Server `/api/graphql`, beside `/api/v3`."""
        url = f"{self._project.api_url.removesuffix('/v3')}/graphql"
        with translate_errors(self._project):
            response = self._session.post(url, json={"query": query, "variables": {"input": asked}})
            document = parse_json(response)
            require_data(document, response.headers)
            return document

    def _url(self, path: str) -> str:
        return f"{self._project.api_url}/repos/{self._project.path}{path}"


def _authorization(project: Project) -> dict[str, str]:
    return {"Authorization": f"token {project.credential.secret.get_secret_value()}"}


def _build_api_session(project: Project) -> requests.Session:
    """Its conditional requests matter: an unchanged answer does not count against the rate limit."""
    session = build_session(
        project.credential.ca_file, only_origin=project.api_url, conditional=True, proxy=project.proxy
    )
    session.headers.update(_authorization(project))
    session.headers.update({"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": _API_VERSION})
    return session
