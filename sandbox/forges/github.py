"""GitHub: github.com and Enterprise Server, over the REST API, and GraphQL for the one operation that REST lacks.

PyGithub does authentication, requests, errors and GraphQL. Its objects are not used: they follow any URL that an
answer holds. Paths are built here, and answers are parsed by our own models.
API: https://docs.github.com/en/rest (version 2022-11-28).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from github import Auth
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import CALL_TIMEOUT_S, MAX_EXCERPTS, MAX_PAGES, Project, Proposal, PullWithText
from sandbox.forges.github_answers import (
    Pull,
    ReadyMutation,
    as_pull_with_text,
    check_of_run,
    check_of_status,
    check_of_workflow,
    excerpt_of_annotations,
    excerpt_of_log,
    jobs_of,
    latest_runs,
    pulls_of,
    runs_of,
    statuses_of,
    workflow_runs_of,
)
from sandbox.forges.github_failures import translate_errors
from sandbox.forges.http_session import build_session, fetch_redirected, retry_read
from sandbox.forges.recovery import recover_pull
from sandbox.forges.responses import parse_response
from sandbox.models import CiCheck, CiState

_API_VERSION = "2022-11-28"
_PAGE = 100
_JOB = re.compile(r"/actions/runs/\d+/job/(\d+)(?:$|[?#])")  # pages of jobs; below: of jobs and other check runs
_RUN = re.compile(r"/(?:job|runs)/(\d+)(?:$|[?#])")
_LOGS = (".actions.githubusercontent.com", ".blob.core.windows.net")
"""Hosts of github.com's logs: https://docs.github.com/en/actions, requirements of self-hosted runners."""


class GitHub:
    """One repository on GitHub; see `forge.Forge`."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._requester = _build_requester(project)
        self._unseen = ""
        self._cache: dict[str, tuple[str, Any]] = {}

    def close(self) -> None:
        self._requester.close()

    def find(self, head: str) -> PullWithText | None:
        owner = self._project.path.split("/")[0]
        asked = {"head": f"{owner}:{head}", "state": "all", "sort": "created", "direction": "desc"}
        ours = [p for p in self._list_all("/pulls", asked, pulls_of) if self._is_from_project(p, head)]
        newest = next((p for p in ours if p.state == "open"), ours[0] if ours else None)
        return as_pull_with_text(newest) if newest else None

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
        found = as_pull_with_text(made)
        return PullWithText(found.pull.model_copy(update={"created": True}), found.title, found.body)

    def replace_body(self, number: int, body: str) -> None:
        self._request("PATCH", f"/pulls/{number}", {"body": body})

    def make_ready(self, number: int) -> None:
        pull = parse_response(Pull, retry_read(lambda: self._request("GET", f"/pulls/{number}")))
        if not pull.draft:
            return
        with translate_errors(self._project):
            _, answer = self._requester.graphql_named_mutation(
                "markPullRequestReadyForReview", {"pullRequestId": pull.node_id}, "pullRequest { isDraft }"
            )
        made = parse_response(ReadyMutation, answer or {}).pull_request
        if made is None or made.is_draft:
            raise SandboxError(
                ErrorCode.FORGE_ERROR,
                f"Pull request {number} is still a draft",
                hint="The token may lack the permission. Mark the pull request as ready on the forge.",
            )

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        del number  # on GitHub all checks belong to the commit
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
            notes = retry_read(lambda: self._request("GET", f"/check-runs/{run[1]}/annotations?per_page=20"))
        except SandboxError:
            return check
        return check.model_copy(update={"excerpt": excerpt_of_annotations(notes)})

    def _fetch_log(self, job: str) -> str:
        """The log of a job of GitHub Actions. It is on another host: fetched without our token, from known hosts."""
        credential = self._project.credential
        token = f"token {credential.secret.get_secret_value()}"
        url = f"{self._project.api_url}{self._api_path(f'/actions/jobs/{job}/logs')}"
        try:
            with closing(build_session(credential.ca_file)) as session, translate_errors(self._project):
                return fetch_redirected(session, url, {"Authorization": token}, self._is_log_host)
        except SandboxError:
            return ""

    def _is_log_host(self, hostname: str) -> bool:
        return hostname in {self._project.hostname, urlsplit(self._project.api_url).hostname} or hostname.endswith(
            _LOGS
        )

    def _list_all(
        self, path: str, parameters: Mapping[str, str], items: Callable[[Any], Sequence[Any]]
    ) -> tuple[Any, ...]:
        """All items of a list. Raises: `forge_error` for a list of more than `MAX_PAGES` pages."""
        found: list[Any] = []
        for page in range(1, MAX_PAGES + 1):
            asked = {**parameters, "per_page": str(_PAGE), "page": str(page)}
            got = items(retry_read(lambda asked=asked: self._get_cached(path, asked)))  # type: ignore[misc]
            found += got
            if len(got) < _PAGE:
                return tuple(found)
        raise SandboxError(ErrorCode.FORGE_ERROR, f"The forge lists more than {MAX_PAGES * _PAGE} items", details=path)

    def _get_cached(self, path: str, parameters: Mapping[str, str]) -> Any:
        """Send a conditional request with the last ETag: an unchanged answer does not count against the rate limit."""
        key = f"{path}?{sorted(parameters.items())}"
        tag, known = self._cache.get(key, ("", None))
        with translate_errors(self._project):
            headers, answer = self._requester.requestJsonAndCheck(
                "GET",
                self._api_path(path),
                parameters=dict(parameters),
                headers={"If-None-Match": tag} if tag else None,
            )
        if answer is None and tag:
            return known
        if headers.get("etag"):
            self._cache[key] = (str(headers["etag"]), answer)
        return answer

    def _request(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        with translate_errors(self._project):
            return self._requester.requestJsonAndCheck(verb, self._api_path(path), input=body)[1]

    def _api_path(self, path: str) -> str:
        return f"/repos/{self._project.path}{path}"


class _HttpsSession(HTTPSRequestsConnectionClass):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.session = build_session(None)  # PyGithub passes the CA file with each request


class _HttpSession(HTTPRequestsConnectionClass):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.session = build_session(None)


class _SessionRequester(Requester):
    """A requester with our sessions. PyGithub's own setting of them is for the whole process; this is per instance."""

    _Requester__httpConnectionClass = _HttpSession
    _Requester__httpsConnectionClass = _HttpsSession


def _build_requester(project: Project) -> Requester:
    ca_file = project.credential.ca_file
    return _SessionRequester(
        auth=Auth.Token(project.credential.secret.get_secret_value()),
        base_url=project.api_url,
        timeout=int(CALL_TIMEOUT_S),
        user_agent="space-sandbox",
        per_page=_PAGE,
        verify=str(ca_file) if ca_file else True,
        retry=0,  # `http_session` does the retries
        pool_size=None,
        api_version=_API_VERSION,
    )
