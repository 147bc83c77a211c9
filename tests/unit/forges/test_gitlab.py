"""GitLab's adapter against a scripted server; what all forges do alike is in tests/contract/test_forges.py."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gitlab
import pytest
import requests
import tenacity
import trustme

from devtools.forges import faults
from devtools.forges.cases import names, recorded
from devtools.forges.exchange import Answer, Request
from devtools.forges.pages import page_of
from devtools.forges.server import Elsewhere, StandIn, serving
from sandbox import retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import http_session
from sandbox.forges.drafts import without_draft
from sandbox.forges.forge import EXCERPT_BYTES, MAX_ANSWER_BYTES, Project, Proposal
from sandbox.forges.gitlab import GitLab
from sandbox.forges.rollup import verdict_of
from sandbox.forges.table import FORGE_ROWS
from sandbox.models import CiCheck, CiState, CiVerdict, Host, PullState
from sandbox.remotes import parse_remote

TOKEN = "glpat-StandInToken012345"
HEAD, OLD, MERGED, TARGET = "a" * 40, "b" * 40, "c" * 40, "d" * 40
BRANCH = "space-agent/x"
ROOT = "/projects/group%2Fsub%2Fdemo"
MR = {
    "iid": 7, "web_url": "https://gitlab.example/group/sub/demo/-/merge_requests/7", "state": "opened",
    "title": "Change", "description": "Why", "draft": False, "work_in_progress": False, "source_branch": BRANCH,
    "target_branch": "main", "source_project_id": 3, "target_project_id": 3, "sha": HEAD, "head_pipeline": None,
}  # fmt: skip
RUN = {"id": 50, "sha": HEAD, "ref": BRANCH, "status": "success", "web_url": "https://gitlab.example/p/50"}
STATUSES = f"repository/commits/{HEAD}/statuses"
LISTS = ("merge_requests", "pipelines", "pipelines/50/jobs", "pipelines/50/bridges", STATUSES)


@dataclass
class Table:
    """A GitLab that answers what a test lists, by path; `changes`: what it was told, in order."""

    bodies: dict[str, Any]
    changes: list[tuple[str, str, Any]] = field(default_factory=list)
    prefixes: tuple[str, ...] = ("/api/v4",)

    def answer(self, request: Request) -> Answer:
        if request.method in {"POST", "PUT"}:
            self.changes.append((request.method, request.path, request.json))
            return Answer(201 if request.method == "POST" else 200, {**MR, **request.json})
        body = self.bodies.get(request.path.removeprefix(f"{ROOT}/"))
        if body is None:
            return Answer(404, {"message": "404 Not found"})
        if isinstance(body, list):
            return Answer(200, *page_of(request, body, 20))
        return Answer(200, body)

    def misasked(self, request: Request) -> list[str]:
        return []

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        return []


class Scripted(StandIn):
    """A server of a table."""

    rules: Table

    def forge(self, username: str = "", secret: str = TOKEN, ca_file: Path | None = None) -> GitLab:
        """The adapter for its project."""
        credential = make_credential(host="127.0.0.1", username=username, secret=secret, ca_file=ca_file)
        return GitLab(Project("gitlab.example", "group/sub/demo", f"{self.url}/api/v4", self.url, credential))

    def list(self, path: str, *items: Mapping[str, Any]) -> None:
        """What is in a list."""
        self.rules.bodies[path] = list(items)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())


@pytest.fixture
def server() -> Iterator[Scripted]:
    """One merge request, one pipeline, nothing else."""
    scripted = Scripted(Table({path: [] for path in LISTS}), TOKEN)
    scripted.list("merge_requests", MR)
    scripted.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": RUN}
    with serving(scripted):
        yield scripted
    assert scripted.stray_tokens() == []


@pytest.fixture
def elsewhere() -> Iterator[StandIn]:
    """Another host."""
    other = StandIn(Elsewhere(lambda _: b"[]"))
    with serving(other):
        yield other


def job(identifier: int, name: str, status: str, **fields: Any) -> dict[str, Any]:
    """A job as lists have it."""
    page = f"https://gitlab.example/group/sub/demo/-/jobs/{identifier}"
    return {"id": identifier, "name": name, "status": status, "allow_failure": False, "web_url": page, **fields}


def status(identifier: int, name: str, state: str, **fields: Any) -> dict[str, Any]:
    """A commit status as lists have it."""
    plain = {"id": identifier, "name": name, "status": state, "allow_failure": False, "target_url": None}
    return {**plain, **fields}


def states(checks: Any) -> dict[str, str]:
    """State by name."""
    return {check.name: check.state.value for check in checks}


# The token


@pytest.mark.parametrize(
    ("username", "header", "value"),
    [
        ("oauth2", "authorization", f"Bearer {TOKEN}"),
        ("", "private-token", TOKEN),
        ("somebody", "private-token", TOKEN),
        ("gitlab-ci-token", "job-token", TOKEN),
    ],
)
def test_token_goes_in_one_header_by_its_user_name(server: Scripted, username: str, header: str, value: str) -> None:
    server.forge(username).find(BRANCH)
    sent = {name: text for name, text in server.requests[0].headers.items() if TOKEN in text}
    assert sent == {header: value}


def test_nothing_of_the_surroundings_adds_a_token(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password NETRC-SECRET\n")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / "cfg").write_text(f"[global]\ndefault = x\n[x]\nurl = {server.url}\nprivate_token = CFG-SECRET\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_GITLAB_CFG", str(tmp_path / "cfg"))
    for name in ("GITLAB_PRIVATE_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN"):
        monkeypatch.setenv(name, "ENV-SECRET")
    server.forge(secret="").find(BRANCH)
    assert not any(name in server.requests[0].headers for name in ("authorization", "private-token", "job-token"))
    requests.get(f"{server.url}/api/v4/x", timeout=10)
    assert server.requests[-1].header("Authorization")  # the control: `requests` does read the file


def test_link_to_a_next_page_elsewhere_is_not_followed(server: Scripted, elsewhere: StandIn) -> None:
    page = Answer(200, [MR], {"Link": f'<{elsewhere.url}/next>; rel="next"'})
    server.on("GET", f"{ROOT}/merge_requests", page, forever=True)
    with pytest.raises(SandboxError) as raised:
        server.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert elsewhere.requests == []
    with gitlab.Gitlab(server.url, private_token=TOKEN, keep_base_url=True) as library:
        list(library.projects.get("group/sub/demo", lazy=True).mergerequests.list(iterator=True))
    assert elsewhere.saw(TOKEN)  # the control: python-gitlab goes there, and the token with it


def test_next_page_of_a_server_that_does_not_know_its_own_name_is_asked_for_at_ours(server: Scripted) -> None:
    server.list("pipelines/50/jobs", *(job(n, f"test {n}", "success") for n in range(101)))
    link = f'<http://internal.invalid:8080/api/v4{ROOT}/pipelines/50/jobs?page=2&per_page=100>; rel="next"'
    first = Answer(200, [job(n, f"test {n}", "success") for n in range(100)], {"Link": link})
    server.on("GET", f"{ROOT}/pipelines/50/jobs", first)
    assert len(server.forge().checks(HEAD, 7)) == 101


@pytest.mark.parametrize("code", [301, 302, 307])
def test_redirect_is_told_and_not_followed(server: Scripted, elsewhere: StandIn, code: int) -> None:
    server.on("GET", f"{ROOT}/merge_requests", faults.redirect(code, f"{elsewhere.url}/api/v4/projects/9"))
    with pytest.raises(SandboxError, match="redirects to another address") as raised:
        server.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert elsewhere.requests == []


def test_server_that_repeats_the_token_does_not_bring_it_into_an_error(server: Scripted) -> None:
    server.on("GET", f"{ROOT}/merge_requests", Answer(401, {"message": f"401 for {TOKEN}\x1b[2J"}))
    with pytest.raises(SandboxError) as raised:
        server.forge().find(BRANCH)
    said = str(raised.value.payload())
    assert "401 for ***" in said
    assert TOKEN not in said
    assert "\x1b" not in raised.value.details


def test_token_that_cannot_be_sent_is_told_and_not_shown(server: Scripted) -> None:
    secret = f"{TOKEN}\u20ac"
    with pytest.raises(SandboxError, match="characters that are not allowed in a token") as raised:
        server.forge(secret=secret).find(BRANCH)
    assert raised.value.code is ErrorCode.AUTH_FAILED
    assert TOKEN not in "".join(traceback.format_exception(raised.value))


def test_private_authority_is_trusted_by_the_credential_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    scripted = Scripted(Table({"merge_requests": [MR]}), TOKEN)
    with serving(scripted, authority):
        assert scripted.forge(ca_file=tmp_path / "ca.pem").find(BRANCH)
        with pytest.raises(SandboxError, match="certificate") as raised:
            scripted.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.NETWORK_ERROR
    assert len(scripted.requests) == 1


# What goes wrong


REFUSALS = {
    "unauthorized": ("auth_failed", "rejected the token", "revoked"),
    "token-expired": ("auth_failed", "rejected the token", "expired"),
    "token-revoked": ("auth_failed", "rejected the token", "revoked"),
    "insufficient-scope": ("auth_failed", "lacks a scope", "`api`"),
    "forbidden": ("auth_failed", "lacks a permission", "Developer"),
    "project-not-found": ("not_found", "or the token has no access to it", "the same answer for both"),
    "moved": ("forge_error", "is read-only", "by its new URL"),
    "unknown-source": ("not_found", "lacks the head or the base branch", "Push"),
    "unknown-target": ("not_found", "lacks the head or the base branch", "Push"),
    "duplicate-merge-request": ("conflict", "for this branch already exists", ""),
    "same-branch": ("forge_error", "refused (HTTP 422)", ""),
    "title-missing": ("forge_error", "refused (HTTP 400)", ""),
    "rate-limit": ("forge_error", "The rate limit of", "30 s"),
    "rate-limit-of-endpoint": ("forge_error", "The rate limit of", "60 s"),
    "server-error": ("forge_error", "failed (HTTP 500)", "later"),
}
"""What we make of each recorded case: code, words of the brief and of the hint."""


@pytest.mark.parametrize("name", names("gitlab"))
def test_refusal_is_told_apart(server: Scripted, name: str) -> None:
    code, brief, hint = REFUSALS[name]
    server.on("PUT", f"{ROOT}/merge_requests/7", recorded("gitlab", name))
    with pytest.raises(SandboxError, match=re.escape(brief)) as raised:
        server.forge().replace_body(7, "new")
    assert raised.value.code.value == code
    assert hint in raised.value.hint
    assert raised.value.details
    assert server.count("PUT", ".*") == 1  # a change is never repeated


@pytest.mark.parametrize(
    "fault",
    [
        faults.server_error(502),
        Answer(429, b"Retry later\n", {"Retry-After": "0", "Content-Type": "text/plain"}),
        faults.lost,
        faults.cut,
    ],
    ids=["502", "429", "lost", "cut"],
)
def test_question_is_repeated_while_the_server_fails(server: Scripted, fault: Any) -> None:
    server.on("GET", f"{ROOT}/merge_requests", fault, fault)
    assert server.forge().find(BRANCH)
    assert server.count("GET", ".*") == 3


def test_long_pause_is_left_to_the_caller(server: Scripted) -> None:
    server.on("GET", f"{ROOT}/merge_requests", Answer(429, {"message": "x"}, {"Retry-After": "86400"}), forever=True)
    with pytest.raises(SandboxError) as raised:
        server.forge().find(BRANCH)
    assert "86400 s" in raised.value.hint
    assert server.count("GET", ".*") == 1


@pytest.mark.parametrize(
    "answer",
    [
        faults.not_json(),
        Answer(200, b"<html>sign in</html>", {"Content-Type": "text/html"}),
        Answer(200, {"not": "a list"}),
        Answer(200, ["no object"]),
        Answer(200, [{**MR, "iid": "seven"}]),
        Answer(200, [{**MR, "state": "undecided"}]),
        Answer(200, [{**MR, "sha": "HEAD"}]),
        Answer(200, [{**MR, "web_url": "https://x/\x1b[2J"}]),
    ],
    ids=["no-json", "html", "no-list", "no-object", "number", "state", "commit", "url"],
)
def test_answer_of_another_shape_is_a_forge_error(server: Scripted, answer: Answer) -> None:
    server.on("GET", f"{ROOT}/merge_requests", answer)
    with pytest.raises(SandboxError) as raised:
        server.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert "\x1b" not in str(raised.value.payload())


def test_list_without_end_is_refused(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.forges.gitlab.MAX_PAGES", 1)
    server.list("merge_requests", *({**MR, "iid": n} for n in range(101)))
    with pytest.raises(SandboxError, match="more than 100"):
        server.forge().find(BRANCH)
    server.list("merge_requests", *({**MR, "iid": n} for n in range(100)))
    assert server.forge().find(BRANCH)


@pytest.mark.parametrize("fault", [faults.dribbling, faults.stalled], ids=["a-byte-at-a-time", "half"])
@pytest.mark.slow
def test_answer_that_does_not_end_is_given_up(server: Scripted, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "CALL_TIMEOUT_S", 0.3)
    server.list("merge_requests", {**MR, "description": "x" * 100_000})  # half an hour, a byte at a time
    server.on("GET", f"{ROOT}/merge_requests", fault, forever=True)
    with pytest.raises(SandboxError) as raised:
        server.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.TIMEOUT


def test_answer_larger_than_we_read_is_refused(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "MAX_ANSWER_BYTES", 100_000)
    server.on("GET", f"{ROOT}/merge_requests", faults.padded(50_000), faults.padded(100_000))
    assert server.forge().find(BRANCH)
    with pytest.raises(SandboxError, match="larger than"):
        server.forge().find(BRANCH)


def test_what_did_not_change_is_not_sent_again(server: Scripted) -> None:
    server.list("pipelines/50/jobs", job(1, "test", "running"))
    forge = server.forge()
    first = forge.checks(HEAD, 7)
    asked = len(server.requests)
    assert not any(r.header("If-None-Match") for r in server.requests)
    assert forge.checks(HEAD, 7) == first
    assert all(r.header("If-None-Match") for r in server.requests[asked:])
    server.list("pipelines/50/jobs", job(1, "test", "failed"))
    assert states(forge.checks(HEAD, 7)) == {"test": "fail"}
    assert states(forge.checks(HEAD, 7)) == {"test": "fail"}


def test_page_that_did_not_change_tells_of_a_new_one_behind_it(server: Scripted) -> None:
    full = [job(n, f"test {n}", "success") for n in range(100)]
    server.list("pipelines/50/jobs", *full)
    forge = server.forge()
    assert verdict_of(forge.checks(HEAD, 7)) is CiVerdict.PASS
    server.list("pipelines/50/jobs", *full, job(100, "last", "failed"))
    assert verdict_of(forge.checks(HEAD, 7)) is CiVerdict.FAIL


# Merge requests


def test_the_open_one_is_found_else_the_newest_and_never_a_forks(server: Scripted) -> None:
    fork = {"source_project_id": 4}
    gone = {"source_project_id": None}
    server.list(
        "merge_requests",
        {**MR, "iid": 12, **fork},
        {**MR, "iid": 11, **gone},
        {**MR, "iid": 10, "source_branch": "other"},
        {**MR, "iid": 9, "state": "merged"},
        {**MR, "iid": 8, "state": "locked"},
        {**MR, "iid": 7, "state": "closed"},
    )
    found = server.forge().find(BRANCH)
    assert found is not None
    assert (found.pull.number, found.pull.state, found.pull.head_commit) == (8, PullState.OPEN, HEAD)
    server.list("merge_requests", {**MR, "state": "closed"}, {**MR, "iid": 9, "state": "merged"})
    found = server.forge().find(BRANCH)
    assert found is not None
    assert (found.pull.number, found.pull.state) == (9, PullState.MERGED)
    server.list("merge_requests", {**MR, **fork})
    assert server.forge().find(BRANCH) is None


@pytest.mark.parametrize(
    ("title", "ready"),
    [
        ("Draft: Change", "Change"),
        ("[Draft] draft: Change", "Change"),
        ("(draft) Change", "Change"),
        ("WIP: Change", "Change"),
        ("  wip [WIP]  draft - draft\t: wip: Change", "Change"),
        ("  Change", "  Change"),
        ("Draft:", BRANCH),
        ("Change the draft: again", "Change the draft: again"),
    ],
)
def test_draft_is_made_ready_by_its_title(server: Scripted, title: str, ready: str) -> None:
    server.rules.bodies["merge_requests/7"] = {**MR, "title": title, "draft": True}
    server.forge().make_ready(7)
    assert server.rules.changes == [("PUT", f"{ROOT}/merge_requests/7", {"title": ready})]


@pytest.mark.parametrize("prefix", ["draft:", "wip ", "[wip]", "draft ", " "])
def test_s246_a_title_of_a_million_draft_prefixes_is_read_in_linear_time(prefix: str) -> None:
    """The controller held the task's lock for minutes."""
    took_s = []
    for size in (100_000, 800_000):
        began = time.process_time()
        without_draft(prefix * (size // len(prefix)) + "x")
        took_s.append(time.process_time() - began)
    assert took_s[1] < 0.2 or took_s[1] < 24 * took_s[0], "quadratic: 64 times"


def test_ready_one_is_left_alone_and_a_stubborn_draft_is_told(server: Scripted) -> None:
    server.forge().make_ready(7)
    assert server.rules.changes == []
    server.rules.bodies["merge_requests/7"] = {**MR, "title": "Draft: Change", "draft": True}
    server.on("PUT", f"{ROOT}/merge_requests/7", faults.changed(draft=True))
    with pytest.raises(SandboxError, match="Merge request !7 is still a draft"):
        server.forge().make_ready(7)


def test_draft_of_an_old_server_is_known_by_its_old_field(server: Scripted) -> None:
    old = {name: value for name, value in MR.items() if name != "draft"}
    server.list("merge_requests", {**old, "work_in_progress": True, "title": "WIP: Change"})
    found = server.forge().find(BRANCH)
    assert found is not None
    assert (found.pull.draft, found.title) == (True, "Change")


def test_opening_sends_texts_and_branches(server: Scripted) -> None:
    opened = server.forge().open(Proposal(BRANCH, "main", "A" * 255, "Body", draft=True))
    ((_, path, sent),) = server.rules.changes
    assert path == f"{ROOT}/merge_requests"
    assert sent == {
        "source_branch": BRANCH,
        "target_branch": "main",
        "title": f"Draft: {'A' * 248}",
        "description": "Body",
    }
    assert opened.pull.created


@pytest.mark.parametrize(
    "step", [faults.lost, recorded("gitlab", "duplicate-merge-request")], ids=["answer-lost", "already-there"]
)
def test_opening_twice_gives_the_one_that_is_there(server: Scripted, step: Any) -> None:
    server.on("POST", f"{ROOT}/merge_requests", step)
    opened = server.forge().open(Proposal(BRANCH, "main", "Change", "Body", draft=False))
    assert (opened.pull.number, opened.pull.created) == (7, False)
    assert server.count("POST", ".*") == 1
    server.list("merge_requests", {**MR, "state": "closed"})
    server.on("POST", f"{ROOT}/merge_requests", step)
    with pytest.raises(SandboxError):
        server.forge().open(Proposal(BRANCH, "main", "Change", "Body", draft=False))


@pytest.mark.parametrize("method", ["describe", "make_ready", "checks"])
def test_merge_request_of_a_fork_is_refused(server: Scripted, method: str) -> None:
    server.rules.bodies["merge_requests/7"] = {**MR, "source_project_id": 4, "draft": True, "head_pipeline": RUN}
    forge = server.forge()
    calls: Mapping[str, Callable[[], object]] = {
        "describe": lambda: forge.replace_body(7, "x"),
        "make_ready": lambda: forge.make_ready(7),
        "checks": lambda: forge.checks(HEAD, 7),
    }
    with pytest.raises(SandboxError, match="comes from a fork") as raised:
        calls[method]()
    assert raised.value.code is ErrorCode.FORGE_UNSUPPORTED
    assert server.rules.changes == []


# Checks


@pytest.mark.parametrize(
    ("said", "allowed", "state"),
    [
        ("success", False, CiState.PASS),
        ("skipped", False, CiState.PASS),
        ("manual", False, CiState.PASS),
        ("failed", False, CiState.FAIL),
        ("failed", True, CiState.PASS),
        ("canceled", False, CiState.FAIL),
        ("canceling", False, CiState.PENDING),
        ("created", False, CiState.PENDING),
        ("waiting_for_resource", False, CiState.PENDING),
        ("preparing", False, CiState.PENDING),
        ("pending", False, CiState.PENDING),
        ("running", True, CiState.PENDING),
        ("scheduled", False, CiState.PENDING),
        ("of a later version", True, CiState.PENDING),
    ],
)
def test_state_of_a_job(server: Scripted, said: str, allowed: bool, state: CiState) -> None:
    server.list("pipelines/50/jobs", job(1, "test", said, allow_failure=allowed))
    (check,) = server.forge().checks(HEAD, 7)
    assert (check.name, check.state) == ("test", state)
    assert check.said.startswith(said)


def test_jobs_bridges_and_statuses_of_others_are_checks(server: Scripted) -> None:
    bridge = job(3, "deploy", "success", downstream_pipeline={"id": 9, "status": "success"})
    page = "https://gitlab.example/group/sub/demo/-/jobs/99"
    server.list("pipelines/50/jobs", job(1, "lint", "success"), job(2, "test", "success"))
    server.list("pipelines/50/bridges", bridge, job(4, "child", "running"))
    server.list(
        STATUSES,
        status(1, "lint", "success"),
        status(3, "deploy", "success"),
        status(99, "of another pipeline", "failed", target_url=page),
        status(100, "jenkins", "failed", target_url="https://jenkins.example/1"),
        status(101, "coverage\x1b[2J", "running", target_url="javascript:alert(1)"),
    )
    checks = server.forge().checks(HEAD, 7)
    found = ["child pending", "coverage pending", "deploy pass", "jenkins fail", "lint pass", "test pass"]
    assert [f"{check.name} {check.state}" for check in checks] == found
    assert checks[1].url is None
    assert verdict_of(checks) is CiVerdict.FAIL


def test_all_pages_count(server: Scripted) -> None:
    server.list("pipelines/50/jobs", *(job(n, f"test {n}", "failed" if n == 250 else "success") for n in range(1, 251)))
    checks = server.forge().checks(HEAD, 7)
    assert len(checks) == 250
    assert verdict_of(checks) is CiVerdict.FAIL
    assert server.count("GET", ".*/jobs") == 3


def test_latest_of_a_retried_job_counts(server: Scripted) -> None:
    server.list("pipelines/50/jobs", job(9, "test", "success"), job(1, "test", "failed"))
    server.list(STATUSES, status(20, "ci", "failed"), status(21, "ci", "success"))
    assert states(server.forge().checks(HEAD, 7)) == {"ci": "pass", "test": "pass"}


def test_name_that_a_job_and_somebody_else_use_hides_neither(server: Scripted) -> None:
    server.list("pipelines/50/jobs", job(1, "test", "failed"))
    server.list(STATUSES, status(20, "test", "success"))
    assert verdict_of(server.forge().checks(HEAD, 7)) is CiVerdict.FAIL


@pytest.mark.parametrize(
    ("said", "verdict"),
    [("failed", CiVerdict.FAIL), ("running", CiVerdict.PENDING), ("skipped", CiVerdict.NONE)],
)
def test_pipeline_without_jobs_speaks_for_itself(server: Scripted, said: str, verdict: CiVerdict) -> None:
    server.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": {**RUN, "status": said}}
    assert verdict_of(server.forge().checks(HEAD, 7)) is verdict


def test_words_of_a_pipeline_are_harmless(server: Scripted) -> None:
    server.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": {**RUN, "status": "x\x1b[31m\ny" + "z" * 9999}}
    (check,) = server.forge().checks(HEAD, 7)
    assert "\x1b" not in check.said
    assert "\n" not in check.said
    assert len(check.said) == 200


def test_pipeline_of_an_earlier_commit_says_nothing(server: Scripted) -> None:
    old = {**RUN, "sha": OLD, "status": "success"}
    server.list("pipelines/50/jobs", job(1, "test", "success"))
    server.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": old}
    assert server.forge().checks(HEAD, 7) == ()
    others = {**RUN, "id": 52, "ref": "main"}, {**RUN, "id": 51, "sha": OLD}
    server.list("pipelines", *others, {**RUN, "status": "running"})
    assert states(server.forge().checks(HEAD, 7)) == {"test": "pass", "pipeline": "pending"}
    assert next(r for r in server.requests if r.path == f"{ROOT}/pipelines").query["sha"] == HEAD


def test_project_without_ci_has_what_others_say(server: Scripted) -> None:
    server.rules.bodies["merge_requests/7"] = MR
    server.list(STATUSES, status(20, "jenkins", "success"))
    server.on("GET", f"{ROOT}/pipelines", recorded("gitlab", "forbidden"), forever=True)
    assert states(server.forge().checks(HEAD, 7)) == {"jenkins": "pass"}
    server.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": {**RUN, "sha": OLD}}
    with pytest.raises(SandboxError, match="lacks a permission"):  # there is CI, and we may not see it
        server.forge().checks(HEAD, 7)


def test_pipeline_on_merged_results_counts_for_the_commit_that_it_merged(server: Scripted) -> None:
    run = {**RUN, "sha": MERGED, "ref": "refs/merge-requests/7/merge"}
    server.rules.bodies["merge_requests/7"] = {**MR, "head_pipeline": run}
    server.list("pipelines/50/jobs", job(1, "test", "failed"))
    server.rules.bodies[f"repository/commits/{MERGED}"] = {"id": MERGED, "parent_ids": [TARGET, HEAD]}
    assert states(server.forge().checks(HEAD, 7)) == {"test": "fail"}
    server.rules.bodies[f"repository/commits/{MERGED}"] = {"id": MERGED, "parent_ids": [TARGET, OLD]}
    assert server.forge().checks(HEAD, 7) == ()


# Logs


def excerpted(server: Scripted, log: bytes) -> CiCheck:
    """The one failed check, with the end of its log."""
    server.list("pipelines/50/jobs", job(5, "test", "failed"))
    server.on("GET", f"{ROOT}/jobs/5/trace", Answer(200, log, {"Content-Type": "text/plain"}))
    forge = server.forge()
    (check,) = forge.add_excerpts(forge.checks(HEAD, 7))
    return check


def test_excerpt_is_the_end_of_the_log_and_harmless(server: Scripted) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(100_000))
    section = b"section_start:1700000000:step_script[collapsed=true]\r\x1b[0K"
    end = section + b"\x1b[31;1mERROR: Job failed\x1b[0;m\x1b]0;title\x07 \xe2\x80\xae\xff\r\n"
    excerpt = excerpted(server, lines + end).excerpt
    assert excerpt.endswith("line 99999\nERROR: Job failed \\u202e\ufffd")
    assert excerpt.startswith("line ")
    assert EXCERPT_BYTES // 2 < len(excerpt.encode()) <= EXCERPT_BYTES
    assert "section_start" not in excerpt
    assert "\x1b" not in excerpt


def test_log_that_cannot_be_had_leaves_the_check(server: Scripted) -> None:
    server.list("pipelines/50/jobs", job(5, "test", "failed"))
    forge = server.forge()
    checks = forge.checks(HEAD, 7)
    assert forge.add_excerpts(checks) == checks  # 404
    server.on("GET", f"{ROOT}/jobs/5/trace", Answer(200, b"boom", filler_bytes=MAX_ANSWER_BYTES))
    assert forge.add_excerpts(checks) == checks


def test_no_more_logs_are_asked_for_than_are_shown(server: Scripted) -> None:
    server.list("pipelines/50/jobs", *(job(n, f"test {n}", "failed") for n in range(9)), job(9, "other", "success"))
    server.on("GET", f"{ROOT}/jobs/./trace", Answer(200, b"boom", {"Content-Type": "text/plain"}), forever=True)
    forge = server.forge()
    checks = forge.add_excerpts(forge.checks(HEAD, 7))
    assert [check.name for check in checks if check.excerpt == "boom"] == [f"test {n}" for n in range(5)]
    assert len(checks) == 10
    assert server.count("GET", ".*/trace") == 5


@pytest.mark.parametrize(
    ("url", "api_url", "path"),
    [
        ("https://git.example/group/sub/demo.git", "https://git.example/api/v4", "group/sub/demo"),
        ("https://git.example/GitLab/group/demo.git", "https://git.example/GitLab/api/v4", "group/demo"),
        ("https://git.example/gitlab-org/demo.git", "https://git.example/gitlab/api/v4", "gitlab-org/demo"),
        ("git@git.example:gitlab/demo.git", "https://git.example/gitlab/api/v4", "gitlab/demo"),
    ],
    ids=["at-the-root", "below-a-path", "only-like-it", "ssh"],
)
def test_path_of_the_project_is_that_within_its_gitlab(url: str, api_url: str, path: str) -> None:
    remote = parse_remote(url, forges={"git.example": Host.GITLAB})
    assert FORGE_ROWS[Host.GITLAB].project_path(remote, api_url) == path
