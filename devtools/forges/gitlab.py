"""A scripted GitLab: one project, its merge requests, pipelines and jobs, with those real rules that matter to us."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from devtools.forges.branches import Branches
from devtools.forges.exchange import Answer, Request
from devtools.forges.gitlab_bodies import Bodies, MergeRequest
from devtools.forges.gitlabapi import description
from devtools.forges.openapi import OpenApi
from devtools.forges.pages import page_of

__all__ = ["GitLabRules", "MergeRequest"]

_PROJECT = "/projects/(?P<project>[^/]+)"


@dataclass
class GitLabRules:
    """`pipelines`: newest last, each with `id`, `sha`, `status`; `jobs` by pipeline: fields that differ from the usual.

    `bridges` likewise; `merges`: parents of commits that GitLab makes itself, for pipelines on merged results.
    `stale_reads`: so many reads of a merge request still tell the old head after a push, as GitLab takes its time.
    """

    branches: Branches
    token: str
    owner: str = "demo-owner"
    name: str = "demo"
    project_id: int = 7
    default_branch: str = "main"
    scopes: tuple[str, ...] = ("api",)
    stale_reads: int = 0
    merge_status: str = "mergeable"
    merge_requests: list[MergeRequest] = field(default_factory=list)
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    bridges: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    merges: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    traces: dict[int, bytes] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ("/api/v4",)

    def __post_init__(self) -> None:
        self.description = OpenApi(description())

    def misasked(self, request: Request) -> list[str]:
        return self.description.misasked(request)

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        return self.description.misanswered(request, answer)

    def answer(self, request: Request) -> Answer:
        if self.token not in {request.header("PRIVATE-TOKEN"), request.header("Authorization").removeprefix("Bearer ")}:
            return Answer(401, {"message": "401 Unauthorized"})
        for method, pattern, handler in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                return self._route(request, handler, found)
        return Answer(404, {"error": "404 Not Found"})

    def _route(self, request: Request, handler: _HandlerOf, found: re.Match[str]) -> Answer:
        words = {name: unquote(value) for name, value in found.groupdict().items()}
        if words.pop("project", str(self.project_id)) not in {str(self.project_id), f"{self.owner}/{self.name}"}:
            return Answer(404, {"message": "404 Project Not Found"})
        if not {"api", *(("read_api",) if request.method == "GET" else ())} & set(self.scopes):
            said = "The request requires higher privileges than provided by the access token."
            return Answer(403, {"error": "insufficient_scope", "error_description": said, "scope": "api"})
        return handler(self, request, **words)

    # What is asked

    def get_project(self, request: Request) -> Answer:
        return Answer(200, self._bodies(request).project())

    def list_merge_requests(self, request: Request) -> Answer:
        query = request.query
        chosen = [
            mr
            for mr in reversed(self.merge_requests)
            if query.get("state", "all") in {"all", mr.state}
            and query.get("source_branch") in {None, mr.source}
            and query.get("target_branch") in {None, mr.target}
        ]
        page, headers = page_of(request, chosen, 20)
        return Answer(200, [self._basic(request, mr) for mr in page], headers)

    def create_merge_request(self, request: Request) -> Answer:
        asked = request.json
        source, target = asked["source_branch"], asked["target_branch"]
        if source == target:
            return Answer(422, {"message": ["You can't use same project/branch for source and target"]})
        other = next(
            (m for m in self.merge_requests if (m.source, m.target, m.state) == (source, target, "opened")), None
        )
        if other:
            words = f"Another open merge request already exists for this source branch: !{other.iid}"
            return Answer(409, {"message": [words]})
        heads = self.branches.all()
        missing = {
            field: ["does not exist"] for field in ("source_branch", "target_branch") if asked[field] not in heads
        }
        if missing:
            return Answer(400, {"message": missing})
        mr = MergeRequest(len(self.merge_requests) + 1, source, target, asked["title"], asked.get("description"))
        self.merge_requests.append(mr)
        mr.sha = heads[source]
        return Answer(201, self._full(request, mr))

    def get_merge_request(self, request: Request, iid: str) -> Answer:
        mr = self._numbered(iid)
        return Answer(200, self._full(request, mr)) if mr else Answer(404, {"message": "404 Not found"})

    def change_merge_request(self, request: Request, iid: str) -> Answer:
        mr, asked = self._numbered(iid), request.json
        if mr is None:
            return Answer(404, {"message": "404 Not found"})
        mr.title = asked.get("title", mr.title)
        mr.description = asked.get("description", mr.description)
        mr.target = asked.get("target_branch", mr.target)
        mr.state = {"close": "closed", "reopen": "opened"}.get(asked.get("state_event", ""), mr.state)
        return Answer(200, self._full(request, mr))

    def list_pipelines_of(self, request: Request, iid: str) -> Answer:
        mr = self._numbered(iid)
        if mr is None:
            return Answer(404, {"message": "404 Not found"})
        return self._pipelines_in(request, [p for p in self.pipelines if p.get("ref", mr.source) == mr.source])

    def list_pipelines(self, request: Request) -> Answer:
        return self._pipelines_in(request, [p for p in self.pipelines if request.query.get("sha") in {None, p["sha"]}])

    def _pipelines_in(self, request: Request, chosen: list[dict[str, Any]]) -> Answer:
        page, headers = page_of(request, chosen[::-1], 20)
        return Answer(200, [self._bodies(request).pipeline(p) for p in page], headers)

    def get_pipeline(self, request: Request, pipeline: str) -> Answer:
        found = next((p for p in self.pipelines if str(p["id"]) == pipeline), None)
        return (
            Answer(200, self._bodies(request).whole_pipeline(found))
            if found
            else Answer(404, {"message": "404 Not found"})
        )

    def list_jobs(self, request: Request, pipeline: str) -> Answer:
        return self._of_pipeline(request, pipeline, self.jobs, Bodies.job)

    def list_bridges(self, request: Request, pipeline: str) -> Answer:
        return self._of_pipeline(request, pipeline, self.bridges, Bodies.bridge)

    def _of_pipeline(
        self, request: Request, pipeline: str, rows: Mapping[int, list[dict[str, Any]]], shape: _ShapeOf
    ) -> Answer:
        found = next((p for p in self.pipelines if str(p["id"]) == pipeline), None)
        if found is None:
            return Answer(404, {"message": "404 Not found"})
        items = [shape(self._bodies(request), found, n, given) for n, given in enumerate(rows.get(found["id"], []))]
        page, headers = page_of(request, items, 20)
        return Answer(200, page, headers)

    def get_commit(self, request: Request, sha: str) -> Answer:
        if sha not in self.merges:
            return Answer(404, {"message": "404 Commit Not Found"})
        return Answer(200, self._bodies(request).commit(sha, self.merges[sha]))

    def list_statuses(self, request: Request, sha: str) -> Answer:
        shown = [self._bodies(request).commit_status(sha, given) for given in self.statuses.get(sha, [])]
        page, headers = page_of(request, shown, 20)
        return Answer(200, page, headers)

    def job_trace(self, request: Request, job: str) -> Answer:
        if int(job) not in self.traces:
            return Answer(404, {"message": "404 Not Found"})
        return Answer(200, self.traces[int(job)], {"Content-Type": "text/plain"})

    def user(self, request: Request) -> Answer:
        return Answer(200, self._bodies(request).user())

    # Parts

    def _bodies(self, request: Request) -> Bodies:
        return Bodies(request, self.owner, self.name, self.project_id, self.default_branch)

    def _basic(self, request: Request, mr: MergeRequest) -> dict[str, Any]:
        if mr.state == "opened":
            mr.sha = self._head_of(mr)
        status = "not_open" if mr.state != "opened" else "draft_status" if mr.draft else self.merge_status
        return self._bodies(request).merge_request(mr, status)

    def _full(self, request: Request, mr: MergeRequest) -> dict[str, Any]:
        basic = self._basic(request, mr)
        head = next((p for p in reversed(self.pipelines) if p["sha"] == basic["sha"]), None)
        return self._bodies(request).one(basic, head, self.branches.all().get(mr.target))

    def _head_of(self, mr: MergeRequest) -> str | None:
        there = self.branches.all().get(mr.source, mr.sha)
        if self.stale_reads and there != mr.sha:
            self.stale_reads -= 1
            return mr.sha
        return there

    def _numbered(self, iid: str) -> MergeRequest | None:
        return next((mr for mr in self.merge_requests if str(mr.iid) == iid), None)


_HandlerOf = Callable[..., Answer]
_ShapeOf = Callable[[Bodies, Mapping[str, Any], int, Mapping[str, Any]], dict[str, Any]]
_MR = f"{_PROJECT}/merge_requests/(?P<iid>\\d+)"
_ROUTES: tuple[tuple[str, str, _HandlerOf], ...] = (
    ("GET", _PROJECT, GitLabRules.get_project),
    ("GET", f"{_PROJECT}/merge_requests", GitLabRules.list_merge_requests),
    ("POST", f"{_PROJECT}/merge_requests", GitLabRules.create_merge_request),
    ("GET", _MR, GitLabRules.get_merge_request),
    ("PUT", _MR, GitLabRules.change_merge_request),
    ("GET", f"{_MR}/pipelines", GitLabRules.list_pipelines_of),
    ("GET", f"{_PROJECT}/pipelines", GitLabRules.list_pipelines),
    ("GET", f"{_PROJECT}/pipelines/(?P<pipeline>\\d+)", GitLabRules.get_pipeline),
    ("GET", f"{_PROJECT}/pipelines/(?P<pipeline>\\d+)/jobs", GitLabRules.list_jobs),
    ("GET", f"{_PROJECT}/pipelines/(?P<pipeline>\\d+)/bridges", GitLabRules.list_bridges),
    ("GET", f"{_PROJECT}/repository/commits/(?P<sha>[^/]+)", GitLabRules.get_commit),
    ("GET", f"{_PROJECT}/repository/commits/(?P<sha>[^/]+)/statuses", GitLabRules.list_statuses),
    ("GET", f"{_PROJECT}/jobs/(?P<job>\\d+)/trace", GitLabRules.job_trace),
    ("GET", "/user", GitLabRules.user),
)
