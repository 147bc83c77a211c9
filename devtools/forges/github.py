"""A scripted GitHub: one repository, its pull requests and checks, with the rules of the real one that matter to us."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from devtools.forges import graphql, openapi, packages
from devtools.forges.branches import Branches
from devtools.forges.exchange import Answer, Request
from devtools.forges.github_bodies import Bodies, Pull
from devtools.forges.pages import page_of

__all__ = ["GitHubRules", "Pull"]

DOCS = "https://docs.github.com/rest"
_FORBIDDEN = "Resource not accessible by personal access token"
_REPO = r"/repos/(?P<owner>[^/]+)/(?P<repo>[^/]+)"
_SHA = re.compile(r"[0-9a-f]{40}")


@dataclass
class GitHubRules:
    """`checks` and `statuses` by commit: fields that differ from the example's. `log_url`: where a job's log lies.

    `reads_checks`: whether the token may read check runs, which a fine-grained one never may; `workflow_runs` by commit
    and `jobs` by run are what it has instead. `stale_reads`: so many reads of pull requests still tell the old head
    after a push, as GitHub takes its time.
    """

    branches: Branches
    token: str
    owner: str = "demo-owner"
    name: str = "demo"
    default_branch: str = "main"
    may_write: bool = True
    reads_checks: bool = True
    stale_reads: int = 0
    drafts: bool = True
    pulls: list[Pull] = field(default_factory=list)
    checks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    annotations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    workflow_runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    jobs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    log_url: Callable[[int], str] = lambda job: f"https://storage.invalid/{job}?sig=signed"
    prefixes: tuple[str, ...] = ("/api/v3", "/api")  # those of an own server; github.com has an own host instead

    def __post_init__(self) -> None:
        self.description = openapi.load(packages.GITHUB_OPENAPI)

    @property
    def bodies(self) -> Bodies:
        return Bodies(self.description, self.owner, self.name, self.default_branch)

    def misasked(self, request: Request) -> list[str]:
        if request.path == "/graphql":
            return graphql.misasked(graphql.load(packages.GITHUB_GRAPHQL), request)
        return self.description.misasked(request)

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        if request.path == "/graphql":
            return graphql.misanswered(graphql.load(packages.GITHUB_GRAPHQL), request, answer)
        return self.description.misanswered(request, answer)

    def answer(self, request: Request) -> Answer:
        limits = {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4999", "X-RateLimit-Used": "1",
                  "X-RateLimit-Reset": str(int(time.time()) + 3600), "X-RateLimit-Resource": "core"}  # fmt: skip
        answer = self._answer(request)
        return Answer(answer.status, answer.body, {**limits, **answer.headers}, checked=answer.checked)

    def _answer(self, request: Request) -> Answer:
        if request.header("Authorization") not in {f"token {self.token}", f"Bearer {self.token}"}:
            return _error(401, "Bad credentials")
        for method, pattern, handler in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                return self._route(request, handler, found)
        return _error(404, "Not Found")

    def _route(self, request: Request, handler: _HandlerOf, found: re.Match[str]) -> Answer:
        words = {name: unquote(value) for name, value in found.groupdict().items()}
        if "owner" in words and (words.pop("owner"), words.pop("repo")) != (self.owner, self.name):
            return _error(404, "Not Found")
        if request.method != "GET" and not self.may_write and request.path != "/graphql":
            return _error(403, _FORBIDDEN)
        return handler(self, request, **words)

    # What is asked

    def get_repository(self, request: Request) -> Answer:
        return Answer(200, self.bodies.repository(request, may_write=self.may_write))

    def list_pulls(self, request: Request) -> Answer:
        query = request.query
        owner, colon, head = query.get("head", "").partition(":")
        state = query.get("state", "open")
        chosen = [
            pull
            for pull in reversed(self.pulls)
            if state in {"all", pull.state}
            and query.get("base") in {None, pull.base}
            and (not colon or (owner, head) == (pull.owner or self.owner, pull.head))  # without an owner: no filter
        ]
        page, headers = page_of(request, chosen, 30)
        return Answer(200, [self._pull(request, pull, simple=True) for pull in page], headers)

    def create_pull(self, request: Request) -> Answer:
        asked = request.json
        head = asked["head"].removeprefix(f"{self.owner}:")
        refusal = self._refusal(head, asked)
        if refusal:
            return refusal
        words = {"title": asked["title"], "body": asked.get("body"), "draft": bool(asked.get("draft"))}
        pull = Pull(len(self.pulls) + 1, head, asked["base"], **words)
        self.pulls.append(pull)
        return Answer(201, self._pull(request, pull))

    def _refusal(self, head: str, asked: Mapping[str, Any]) -> Answer | None:
        heads = self.branches.all()
        fields = [{"resource": "PullRequest", "field": name, "code": "invalid"}
                  for name, branch in (("base", asked["base"]), ("head", head)) if branch not in heads]  # fmt: skip
        if fields:
            return _invalid(*fields)
        if any(p.head == head and not p.fork and p.base == asked["base"] and p.state == "open" for p in self.pulls):
            return _invalid(_custom(f"A pull request already exists for {self.owner}:{head}."))
        if not self.branches.ahead(heads[asked["base"]], heads[head]):
            return _invalid(_custom(f"No commits between {asked['base']} and {head}"))
        if asked.get("draft") and not self.drafts:
            return _error(422, "Draft pull requests are not supported in this repository.")
        return None

    def get_pull(self, request: Request, number: str) -> Answer:
        pull = self._numbered(number)
        return Answer(200, self._pull(request, pull)) if pull else _error(404, "Not Found")

    def change_pull(self, request: Request, number: str) -> Answer:
        pull, asked = self._numbered(number), request.json
        if pull is None:
            return _error(404, "Not Found")
        if asked.get("base", pull.base) not in self.branches.all():
            return _invalid({"resource": "PullRequest", "field": "base", "code": "invalid"})
        if asked.get("state") == "open" and (pull.merged or pull.head not in self.branches.all()):
            return _invalid(_custom("state cannot be changed."))
        for name in ("title", "body", "state", "base"):  # `draft` cannot be changed here, only by GraphQL
            setattr(pull, name, asked.get(name, getattr(pull, name)))
        return Answer(200, self._pull(request, pull))

    def get_commit(self, request: Request, ref: str) -> Answer:
        oid = self._commit(ref)
        if oid is None:
            return _error(422, f"No commit found for SHA: {ref}")
        return Answer(200, {**self.bodies.example("commit", request, oid=oid), "files": []})

    def list_check_runs(self, request: Request, ref: str) -> Answer:
        oid = self._commit(ref)
        if oid is None:
            return _error(422, f"No commit found for SHA: {ref}")
        if not self.reads_checks:
            return _error(403, "Resource not accessible by personal access token")
        example = self.bodies.example("check-run-paginated", request, oid=oid)["check_runs"][0]
        runs = [{**example, "head_sha": oid, "id": oid_number(oid, n), **given}
                for n, given in enumerate(self.checks.get(oid, []))]  # fmt: skip
        page, headers = page_of(request, runs, 30)
        return Answer(200, {"total_count": len(runs), "check_runs": page}, headers)

    def combined_status(self, request: Request, ref: str) -> Answer:
        oid = self._commit(ref)
        if oid is None:
            return _error(404, "Not Found")
        example = self.bodies.example("combined-commit-status", request, oid=oid)
        statuses = [{**example["statuses"][0], **given} for given in self.statuses.get(oid, [])]
        states = {status["state"] for status in statuses}
        failed = states & {"failure", "error"}
        state = "failure" if failed else "success" if states == {"success"} else "pending"  # without any: pending
        page, headers = page_of(request, statuses, 30)
        fields = {"sha": oid, "state": state, "statuses": page, "total_count": len(statuses)}
        return Answer(200, {**example, **fields}, headers)

    def list_annotations(self, request: Request, run: str) -> Answer:
        plain = {"path": "README.md", "start_line": 2, "end_line": 2, "start_column": 5, "end_column": 10,
                 "annotation_level": "failure", "title": "Title", "message": "What failed", "raw_details": None,
                 "blob_href": f"{request.base_url}/blob"}  # fmt: skip
        page, headers = page_of(request, [{**plain, **a} for a in self.annotations.get(int(run), [])], 30)
        return Answer(200, page, headers)

    def list_workflow_runs(self, request: Request) -> Answer:
        oid = request.query.get("head_sha", "")
        example = self.bodies.example("workflow-run-paginated", request, oid=oid)["workflow_runs"][0]
        runs = [{**example, "head_sha": oid, **given} for given in self.workflow_runs.get(oid, [])]
        page, headers = page_of(request, runs, 30)
        return Answer(200, {"total_count": len(runs), "workflow_runs": page}, headers)

    def list_jobs(self, request: Request, run: str) -> Answer:
        example = self.bodies.example("job-paginated", request)["jobs"][0]
        jobs = [
            {**example, "created_at": example["started_at"], "run_id": int(run), **given}
            for given in self.jobs.get(int(run), [])
        ]
        page, headers = page_of(request, jobs, 30)
        return Answer(200, {"total_count": len(jobs), "jobs": page}, headers)

    def job_log(self, request: Request, job: str) -> Answer:
        return Answer(302, b"", {"Location": self.log_url(int(job)), "Content-Type": "text/html"})

    def rate_limit(self, request: Request) -> Answer:
        return Answer(200, self.bodies.example("rate-limit-overview", request))

    def user(self, request: Request) -> Answer:
        return Answer(200, {**self.bodies.example("private-user-response-with-public-profile-information", request),
                            "login": self.owner})  # fmt: skip

    def graphql(self, request: Request) -> Answer:
        resolvers = {
            "markPullRequestReadyForReview": lambda _, input: self._set_draft(input, draft=False),
            "convertPullRequestToDraft": lambda _, input: self._set_draft(input, draft=True),
        }
        schema = graphql.load(packages.GITHUB_GRAPHQL)
        return graphql.answer(schema, request, resolvers)

    # Parts

    def _set_draft(self, asked: Mapping[str, Any], *, draft: bool) -> dict[str, Any]:
        pull = next((p for p in self.pulls if p.node_id == asked["pullRequestId"]), None)
        if pull is None:
            raise graphql.Refused("NOT_FOUND", f"Could not resolve to a node with the global id of '{asked}'")
        if not self.may_write:
            raise graphql.Refused("FORBIDDEN", _FORBIDDEN)
        pull.draft = draft
        shown = {"id": pull.node_id, "number": pull.number, "isDraft": draft, "title": pull.title}
        return {"clientMutationId": asked.get("clientMutationId"), "pullRequest": shown}

    def _pull(self, request: Request, pull: Pull, *, simple: bool = False) -> dict[str, Any]:
        heads = self.branches.all()
        if pull.state == "open":
            pull.last_head = "f" * 40 if pull.fork else self._head_of(pull, heads)
        return self.bodies.pull(request, pull, heads.get(pull.base, "0" * 40), simple=simple)

    def _head_of(self, pull: Pull, heads: Mapping[str, str]) -> str:
        there = heads.get(pull.head, pull.last_head)
        if self.stale_reads and pull.last_head and there != pull.last_head:
            self.stale_reads -= 1
            return pull.last_head
        return there

    def _numbered(self, number: str) -> Pull | None:
        return next((pull for pull in self.pulls if str(pull.number) == number), None)

    def _commit(self, ref: str) -> str | None:
        named = self.branches.all().get(ref.removeprefix("heads/"))
        return named or (ref if _SHA.fullmatch(ref) and self.branches.knows(ref) else None)


_HandlerOf = Callable[..., Answer]
_ROUTES: tuple[tuple[str, str, _HandlerOf], ...] = (
    ("GET", _REPO, GitHubRules.get_repository),
    ("GET", f"{_REPO}/pulls", GitHubRules.list_pulls),
    ("POST", f"{_REPO}/pulls", GitHubRules.create_pull),
    ("GET", f"{_REPO}/pulls/(?P<number>\\d+)", GitHubRules.get_pull),
    ("PATCH", f"{_REPO}/pulls/(?P<number>\\d+)", GitHubRules.change_pull),
    ("GET", f"{_REPO}/commits/(?P<ref>[^/]+)", GitHubRules.get_commit),
    ("GET", f"{_REPO}/commits/(?P<ref>[^/]+)/check-runs", GitHubRules.list_check_runs),
    ("GET", f"{_REPO}/commits/(?P<ref>[^/]+)/status", GitHubRules.combined_status),
    ("GET", f"{_REPO}/check-runs/(?P<run>\\d+)/annotations", GitHubRules.list_annotations),
    ("GET", f"{_REPO}/actions/runs", GitHubRules.list_workflow_runs),
    ("GET", f"{_REPO}/actions/runs/(?P<run>\\d+)/jobs", GitHubRules.list_jobs),
    ("GET", f"{_REPO}/actions/jobs/(?P<job>\\d+)/logs", GitHubRules.job_log),
    ("GET", "/rate_limit", GitHubRules.rate_limit),
    ("GET", "/user", GitHubRules.user),
    ("POST", "/graphql", GitHubRules.graphql),
)


def oid_number(oid: str, position: int) -> int:
    """An id for a check run of a commit that needs none of its own."""
    return int(oid[:6], 16) * 100 + position


def _error(status: int, message: str, **more: Any) -> Answer:
    return Answer(status, {"message": message, **more, "documentation_url": DOCS, "status": str(status)})


def _invalid(*errors: Mapping[str, Any]) -> Answer:
    return _error(422, "Validation Failed", errors=list(errors))


def _custom(message: str) -> Mapping[str, str]:
    return {"resource": "PullRequest", "code": "custom", "message": message}
