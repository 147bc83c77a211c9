"""A scripted GitLab: one project, its merge requests, pipelines and jobs, with those real rules that matter to us."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from devtools.forges.branches import Branches
from devtools.forges.exchange import Answer, Request
from devtools.forges.gitlabapi import description
from devtools.forges.openapi import OpenApi
from devtools.forges.pages import page_of

_DRAFT = re.compile(r"\s*(\[draft\]|\(draft\)|draft:)", re.IGNORECASE)
_AT = "2024-01-01T00:00:00.000Z"
_PROJECT = "/projects/(?P<project>[^/]+)"


@dataclass
class MergeRequest:
    """Its draft state is a prefix of its title; GitLab has no other field to set."""

    iid: int
    source: str
    target: str
    title: str
    description: str | None
    state: str = "opened"
    sha: str | None = None


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
        web = f"{_site(request)}/{self.owner}/{self.name}"
        return Answer(200, {
            "id": self.project_id, "description": None, "name": self.name, "path": self.name, "created_at": _AT,
            "name_with_namespace": f"{self.owner} / {self.name}", "path_with_namespace": f"{self.owner}/{self.name}",
            "default_branch": self.default_branch, "ssh_url_to_repo": f"git@localhost:{self.owner}/{self.name}.git",
            "http_url_to_repo": f"{web}.git", "web_url": web, "readme_url": None, "forks_count": 0, "star_count": 0,
            "last_activity_at": _AT, "archived": False, "visibility": "private", "empty_repo": False,
            "merge_requests_enabled": True, "jobs_enabled": True, "merge_method": "merge",
            "only_allow_merge_if_pipeline_succeeds": False,
            "permissions": {"project_access": {"access_level": 30, "notification_level": 3}, "group_access": None},
            "namespace": {"id": 3, "name": self.owner, "path": self.owner, "kind": "user", "full_path": self.owner,
                          "parent_id": None, "avatar_url": None, "web_url": f"{_site(request)}/{self.owner}"},
        })  # fmt: skip

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
        return Answer(200, [self._pipeline(request, p) for p in page], headers)

    def get_pipeline(self, request: Request, pipeline: str) -> Answer:
        found = next((p for p in self.pipelines if str(p["id"]) == pipeline), None)
        return Answer(200, self._head(request, found)) if found else Answer(404, {"message": "404 Not found"})

    def list_jobs(self, request: Request, pipeline: str) -> Answer:
        return self._of_pipeline(request, pipeline, self.jobs, self._job)

    def list_bridges(self, request: Request, pipeline: str) -> Answer:
        return self._of_pipeline(request, pipeline, self.bridges, self._bridge)

    def _of_pipeline(
        self, request: Request, pipeline: str, rows: Mapping[int, list[dict[str, Any]]], shape: _ShapeOf
    ) -> Answer:
        found = next((p for p in self.pipelines if str(p["id"]) == pipeline), None)
        if found is None:
            return Answer(404, {"message": "404 Not found"})
        items = [shape(request, found, n, given) for n, given in enumerate(rows.get(found["id"], []))]
        page, headers = page_of(request, items, 20)
        return Answer(200, page, headers)

    def get_commit(self, request: Request, sha: str) -> Answer:
        if sha not in self.merges:
            return Answer(404, {"message": "404 Commit Not Found"})
        who = {f"{role}_{what}": "Demo" for role in ("author", "committer") for what in ("name", "email")}
        return Answer(200, {
            "id": sha, "short_id": sha[:8], "created_at": _AT, "parent_ids": self.merges[sha], "title": "Merge",
            "message": "Merge", "authored_date": _AT, "committed_date": _AT, "trailers": {}, "extended_trailers": {},
            "web_url": f"{_site(request)}/{self.owner}/{self.name}/-/commit/{sha}", "status": None, **who,
            "project_id": self.project_id, "last_pipeline": None,
        })  # fmt: skip

    def list_statuses(self, request: Request, sha: str) -> Answer:
        plain = {"id": 93, "sha": sha, "ref": self.default_branch, "status": "success", "name": "default",
                 "target_url": None, "description": None, "created_at": _AT, "started_at": None, "finished_at": None,
                 "allow_failure": False, "coverage": None, "pipeline_id": None, "author": _user(request)}  # fmt: skip
        page, headers = page_of(request, [{**plain, **given} for given in self.statuses.get(sha, [])], 20)
        return Answer(200, page, headers)

    def job_trace(self, request: Request, job: str) -> Answer:
        if int(job) not in self.traces:
            return Answer(404, {"message": "404 Not Found"})
        return Answer(200, self.traces[int(job)], {"Content-Type": "text/plain"})

    def user(self, request: Request) -> Answer:
        return Answer(200, _user(request))

    # Parts

    def _basic(self, request: Request, mr: MergeRequest) -> dict[str, Any]:
        draft = bool(_DRAFT.match(mr.title))
        closed = _AT if mr.state == "closed" else None
        reference = f"!{mr.iid}"
        return {
            "id": 100 + mr.iid, "iid": mr.iid, "project_id": self.project_id, "title": mr.title, "state": mr.state,
            "description": mr.description, "created_at": _AT, "updated_at": _AT, "merged_by": None, "merge_user": None,
            "merged_at": _AT if mr.state == "merged" else None, "closed_by": None, "closed_at": closed,
            "target_branch": mr.target, "source_branch": mr.source, "user_notes_count": 0, "upvotes": 0, "downvotes": 0,
            "author": _user(request), "assignees": [], "assignee": None, "reviewers": [], "labels": [],
            "source_project_id": self.project_id, "target_project_id": self.project_id, "draft": draft,
            "imported": False, "imported_from": "none", "work_in_progress": draft, "milestone": None,
            "merge_when_pipeline_succeeds": False, "merge_status": "can_be_merged", "merge_after": None,
            "detailed_merge_status": self._merge_status(mr, draft=draft), "sha": self._sha(mr),
            "merge_commit_sha": None, "squash_commit_sha": None, "discussion_locked": None,
            "should_remove_source_branch": None, "force_remove_source_branch": None, "prepared_at": _AT,
            "reference": reference, "time_stats": {}, "squash": False, "squash_on_merge": False,
            "references": {"short": reference, "relative": reference, "full": f"{self.owner}/{self.name}{reference}"},
            "web_url": f"{_site(request)}/{self.owner}/{self.name}/-/merge_requests/{mr.iid}",
            "task_completion_status": {"count": 0, "completed_count": 0}, "has_conflicts": False,
            "blocking_discussions_resolved": True,
        }  # fmt: skip

    def _full(self, request: Request, mr: MergeRequest) -> dict[str, Any]:
        basic = self._basic(request, mr)
        head = next((p for p in reversed(self.pipelines) if p["sha"] == basic["sha"]), None)
        return {
            **basic, "subscribed": True, "changes_count": "1", "latest_build_started_at": None,
            "latest_build_finished_at": None, "first_deployed_to_production_at": None, "merge_error": None,
            "pipeline": self._pipeline(request, head) if head else None,
            "head_pipeline": self._head(request, head) if head else None,
            "diff_refs": {"base_sha": self.branches.all().get(mr.target), "head_sha": basic["sha"],
                          "start_sha": self.branches.all().get(mr.target)},
            "user": {"can_merge": True}, "first_contribution": False,
        }  # fmt: skip

    def _merge_status(self, mr: MergeRequest, *, draft: bool) -> str:
        return "not_open" if mr.state != "opened" else "draft_status" if draft else self.merge_status

    def _sha(self, mr: MergeRequest) -> str | None:
        if self.stale_reads and mr.sha != self.branches.all().get(mr.source):
            self.stale_reads -= 1
        else:
            mr.sha = self.branches.all().get(mr.source, mr.sha)
        return mr.sha

    def _pipeline(self, request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
        web = f"{_site(request)}/{self.owner}/{self.name}/-/pipelines/{given['id']}"
        return {"iid": given["id"], "project_id": self.project_id, "ref": self.default_branch, "source": "push",
                "created_at": _AT, "updated_at": _AT, "web_url": web, "name": None, **given}  # fmt: skip

    def _head(self, request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
        status = given["status"]
        words = dict.fromkeys(("icon", "text", "label", "group", "tooltip", "favicon", "details_path"), status)
        detailed = {**words, "has_details": True, "illustration": None}
        return {**self._pipeline(request, given), "before_sha": None, "tag": False, "yaml_errors": None,
                "user": _user(request), "started_at": _AT, "finished_at": None, "committed_at": None, "duration": None,
                "queued_duration": 1, "coverage": None, "detailed_status": detailed}  # fmt: skip

    def _job(self, request: Request, pipeline: Mapping[str, Any], n: int, given: Mapping[str, Any]) -> dict[str, Any]:
        number = pipeline["id"] * 1000 + n
        web = f"{_site(request)}/{self.owner}/{self.name}/-/jobs/{given.get('id', number)}"
        return {"id": number, "status": "success", "stage": "test", "name": f"job {n}", "ref": self.default_branch,
                "tag": False, "coverage": None, "allow_failure": False, "created_at": _AT, "started_at": _AT,
                "finished_at": _AT, "erased_at": None, "duration": 1.5, "queued_duration": 0.1, "user": _user(request),
                "commit": {"id": pipeline["sha"]}, "pipeline": self._pipeline(request, pipeline), "web_url": web,
                "project": {"ci_job_token_scope_enabled": False}, "artifacts": [], "artifacts_expire_at": None,
                "tag_list": [], "runner": None, "runner_manager": None, "archived": False, **given}  # fmt: skip

    def _bridge(
        self, request: Request, pipeline: Mapping[str, Any], n: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        job = self._job(request, pipeline, 500 + n, given)
        of_jobs = {"artifacts", "artifacts_expire_at", "tag_list", "runner", "runner_manager", "archived"}
        return {"downstream_pipeline": None, **{name: value for name, value in job.items() if name not in of_jobs}}

    def _numbered(self, iid: str) -> MergeRequest | None:
        return next((mr for mr in self.merge_requests if str(mr.iid) == iid), None)


_HandlerOf = Callable[..., Answer]
_ShapeOf = Callable[[Request, Mapping[str, Any], int, Mapping[str, Any]], dict[str, Any]]
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


def _user(request: Request) -> dict[str, Any]:
    return {"id": 5, "username": "demo", "name": "Demo", "state": "active", "locked": False, "avatar_url": None,
            "web_url": f"{_site(request)}/demo", "public_email": None}  # fmt: skip


def _site(request: Request) -> str:
    return request.base_url.removesuffix("/api/v4")
