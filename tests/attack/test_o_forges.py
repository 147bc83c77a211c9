"""O04: a forge, or whoever stands in its place, that would have us take another project for ours, or our token."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gitlab as python_gitlab
import pytest
import requests
import tenacity

from devtools.forges import faults
from devtools.forges.exchange import Answer
from devtools.forges.fixtures import GitHub, GitLab, elsewhere, forge_packages, github, gitlab
from devtools.forges.server import StandIn
from sandbox import retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import read_budget
from sandbox.forges.forge import MAX_PAGES, Forge, Project, Proposal
from sandbox.forges.github import GitHub as GitHubForge
from sandbox.forges.gitlab import GitLab as GitLabForge
from sandbox.models import CiState, Host, PullRequest
from sandbox.remotes import parse_remote
from sandbox.workbench.delivery.forge import connect_forge

__all__ = ["elsewhere", "forge_packages", "github", "gitlab"]

BRANCH = "space-agent/x"


@dataclass(frozen=True)
class Side:
    """A forge with one pull request of ours, listed at `list_path`; `fork` makes a fork's of a listed one."""

    server: GitHub | GitLab
    forge: Forge
    list_path: str
    fork: Callable[[dict[str, Any]], dict[str, Any]]


def _fork_on_github(pull: dict[str, Any]) -> dict[str, Any]:
    head = pull["head"]
    return {**pull, "head": {**head, "repo": {**head["repo"], "full_name": "attacker/demo"}}}


def _fork_on_gitlab(request: dict[str, Any]) -> dict[str, Any]:
    return {**request, "source_project_id": 666}


@pytest.fixture(params=["github", "gitlab"])
def side(request: pytest.FixtureRequest) -> Side:
    server: GitHub | GitLab = request.getfixturevalue(request.param)
    credential = make_credential(host="127.0.0.1", secret=server.token)
    project = Project("127.0.0.1", "demo-owner/demo", server.api_url, server.url, credential)
    server.push(BRANCH)
    if isinstance(server, GitHub):
        path = "/repos/demo-owner/demo/pulls"
        found = Side(server, GitHubForge(project), path, _fork_on_github)
    else:
        path = "/projects/demo-owner%2Fdemo/merge_requests"
        found = Side(server, GitLabForge(project), path, _fork_on_gitlab)
    found.forge.open(Proposal(BRANCH, "main", "Change", "", draft=True))
    return found


def list_ready(forge: Forge, head: str) -> list[PullRequest]:
    return [pull for pull in forge.list_open(head) if not pull.draft]


def test_o04_a_forks_branch_of_the_same_name_is_not_ours(side: Side) -> None:
    def of_a_fork(answer: Answer) -> Answer:
        return replace(answer, body=[side.fork(item) for item in answer.body])

    assert side.forge.find(BRANCH) is not None  # the control
    side.server.on("GET", side.list_path, of_a_fork)
    assert side.forge.find(BRANCH) is None


def test_s10_a_ready_request_of_a_forks_branch_of_the_same_name_is_not_ours(side: Side) -> None:
    def of_a_fork(answer: Answer) -> Answer:
        return replace(answer, body=[side.fork(item) for item in answer.body])

    side.forge.make_ready(1)
    assert list_ready(side.forge, BRANCH)  # the control
    side.server.on("GET", side.list_path, of_a_fork)
    assert not list_ready(side.forge, BRANCH)


def test_o04_a_redirect_takes_no_token_along(side: Side, elsewhere: StandIn) -> None:
    side.server.on("GET", side.list_path, faults.redirect(301, f"{elsewhere.url}/projects/666"), forever=True)
    with pytest.raises(SandboxError) as raised:
        side.forge.find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert "by its new URL" in raised.value.hint
    assert elsewhere.requests == []
    api = f"{side.server.api_url}{side.list_path}"
    requests.get(api, headers={"PRIVATE-TOKEN": side.server.token}, timeout=30)
    assert elsewhere.saw(side.server.token)  # the control: `requests` takes such a header along


def test_o04_a_next_page_elsewhere_is_not_asked_for(side: Side, elsewhere: StandIn) -> None:
    def full(answer: Answer) -> Answer:
        link = f'<{elsewhere.url}/next?page=2>; rel="next"'
        return replace(answer, body=answer.body * 100, headers={"Link": link}, checked=False)

    side.server.on("GET", side.list_path, full, forever=True)
    with contextlib.suppress(SandboxError):  # either it builds the address of the next page itself, or it gives up
        side.forge.find(BRANCH)
    assert elsewhere.requests == []


def test_o04_python_gitlab_alone_would_send_the_token_there(gitlab: GitLab, elsewhere: StandIn) -> None:
    link = {"Link": f'<{elsewhere.url}/next?page=2>; rel="next"'}
    gitlab.on("GET", "/projects/7/merge_requests", Answer(200, [], link, checked=False))
    library = python_gitlab.Gitlab(gitlab.url, private_token=gitlab.token, keep_base_url=True)
    with library, pytest.raises(KeyError):  # what it makes of the answer there: no list
        list(library.projects.get(7, lazy=True).mergerequests.list(iterator=True))
    assert elsewhere.saw(gitlab.token)


def _endless(url: str, item: dict[str, Any] | None) -> Callable[[Answer], Answer]:
    """Each page names a next one; it is full, or has no item."""
    pages = itertools.count(2)

    def page(answer: Answer) -> Answer:
        link = f'<{url}?page={next(pages)}>; rel="next"'
        return replace(answer, body=[item] * 100 if item else [], headers={"Link": link}, checked=False)

    return page


@pytest.fixture
def endless(side: Side) -> Callable[[Answer], Answer]:
    """What comes instead of each answer."""
    seen: list[dict[str, Any]] = []

    def look(answer: Answer) -> Answer:
        seen.extend(answer.body)
        return answer

    side.server.on("GET", side.list_path, look)
    assert side.forge.find(BRANCH) is not None
    return _endless(f"{side.server.api_url}{side.list_path}", seen[0] if isinstance(side.server, GitHub) else None)


def _in_short_pages(url: str, field: str, items: list[dict[str, Any]], *, linked: bool) -> Callable[[Answer], Answer]:
    """A list that a server gives in pages of 50, whatever is asked for. Each names the next one, or only all items."""
    pages = itertools.count(1)

    def page(answer: Answer) -> Answer:
        number = next(pages)
        part = items[(number - 1) * 50 : number * 50]
        link = {"Link": f'<{url}?page={number + 1}>; rel="next"'} if linked and number * 50 < len(items) else {}
        body = {"total_count": len(items), field: part} if field else part
        return replace(answer, body=body, headers=link, checked=False)

    return page


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "counted"])
@pytest.mark.parametrize("field", ["check_runs", "statuses"])
@pytest.mark.parametrize("ending", ["failure", "success"], ids=["attack", "control"])
def test_s226_a_failed_check_on_a_page_after_a_short_one_counts(
    github: GitHub, field: str, ending: str, *, linked: bool
) -> None:
    forge, commit = _ours_on_github(github), github.push(BRANCH)
    passed = {"id": 1, "name": "c", "context": "c", "html_url": "https://x", "status": "completed"}
    passed |= {"conclusion": "success", "state": "success"}
    items = [*[passed] * 70, {**passed, "conclusion": ending, "state": ending}]
    path = "check-runs" if field == "check_runs" else "status"
    asked = f"/repos/demo-owner/demo/commits/{commit}/{path}"
    listed = _in_short_pages(f"{github.api_url}{asked}", field, items, linked=linked)
    github.on("GET", asked, listed, forever=True)
    checks = forge.checks(commit, 1)
    assert len([check for check in checks if check.name == "c"]) == 71
    assert any(check.state is CiState.FAIL for check in checks) is (ending == "failure")


def test_s226_a_ready_pull_request_on_a_page_after_a_short_one_is_found(github: GitHub) -> None:
    forge, seen = _ours_on_github(github), list[dict[str, Any]]()
    github.push(BRANCH)
    forge.open(Proposal(BRANCH, "main", "Change", "", draft=True))

    def look(answer: Answer) -> Answer:
        seen.extend(answer.body)
        return answer

    asked = "/repos/demo-owner/demo/pulls"
    github.on("GET", asked, look)
    assert not list_ready(forge, BRANCH)  # the control: a draft
    items = [*[{**seen[0], "state": "closed"}] * 60, {**seen[0], "draft": False}]
    listed = _in_short_pages(f"{github.api_url}{asked}", "", items, linked=True)
    github.on("GET", asked, listed, forever=True)
    assert list_ready(forge, BRANCH)


def test_s226_empty_pages_that_name_a_next_one_are_given_up(github: GitHub) -> None:
    forge, before = _ours_on_github(github), len(github.requests)
    github.on("GET", ".*", _endless(f"{github.api_url}/repos/demo-owner/demo/pulls", None), forever=True)
    with pytest.raises(SandboxError, match="The forge lists more than"):
        forge.find(BRANCH)
    assert len(github.requests) - before == MAX_PAGES


def _ours_on_github(github: GitHub) -> Forge:
    credential = make_credential(host="127.0.0.1", secret=github.token)
    return GitHubForge(Project("127.0.0.1", "demo-owner/demo", github.api_url, github.url, credential))


def test_s212_a_list_without_an_end_is_given_up(side: Side, endless: Callable[[Answer], Answer]) -> None:
    before = len(side.server.requests)
    side.server.on("GET", ".*", endless, forever=True)
    with pytest.raises(SandboxError, match="The forge lists more than") as raised:
        side.forge.find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert len(side.server.requests) - before == MAX_PAGES


def test_s212_a_list_that_is_slow_is_given_up(
    side: Side, endless: Callable[[Answer], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(answer: Answer) -> Answer:
        time.sleep(0.3)
        return endless(answer)

    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    monkeypatch.setattr(read_budget, "READS_TIMEOUT_S", 1.0)
    before, begun = len(side.server.requests), time.monotonic()
    side.server.on("GET", ".*", slow, forever=True)
    with pytest.raises(SandboxError) as raised:
        side.forge.find(BRANCH)
    assert raised.value.code is ErrorCode.TIMEOUT
    assert len(side.server.requests) - before <= 4
    assert time.monotonic() - begun < 0.3 * MAX_PAGES


@pytest.mark.parametrize(
    ("most_bytes", "refusal", "requests"),
    [(5_000_000, "larger than 5000000 bytes", range(1, 11)), (100_000_000, "lists more than", range(20, 21))],
    ids=["too large", "control"],
)
def test_s212_a_list_of_large_pages_is_given_up(
    side: Side,
    endless: Callable[[Answer], Answer],
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
    refusal: str,
    requests: range,
) -> None:
    monkeypatch.setattr(read_budget, "MAX_READ_BYTES", most_bytes)
    before = len(side.server.requests)
    side.server.on("GET", ".*", lambda answer: replace(endless(answer), filler_bytes=600_000), forever=True)
    with pytest.raises(SandboxError, match=refusal) as raised:
        side.forge.find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert len(side.server.requests) - before in requests


def test_s212_python_gitlab_alone_would_ask_until_the_stack_ends(gitlab: GitLab) -> None:
    url = f"{gitlab.api_url}/projects/7/merge_requests"
    gitlab.on("GET", ".*", _endless(url, None), forever=True)
    library = python_gitlab.Gitlab(gitlab.url, private_token=gitlab.token, keep_base_url=True)
    with library, pytest.raises(RecursionError):
        list(library.projects.get(7, lazy=True).mergerequests.list(iterator=True))
    assert len(gitlab.requests) > 5 * MAX_PAGES


def test_s214_a_forge_brings_our_token_into_no_result(side: Side) -> None:
    token, is_github = side.server.token, isinstance(side.server, GitHub)
    field = "html_url" if is_github else "web_url"
    said = {"id": 1, "name": f"a {token}", "context": f"a {token}", "state": "failure", "status": "failed"}

    def with_token(answer: Answer) -> Answer:
        return replace(answer, body=[{**item, field: f"https://x/{token}"} for item in answer.body])

    statuses = Answer(200, {"statuses": [said]} if is_github else [said], checked=False)
    side.server.on("GET", side.list_path, with_token, forever=True)
    side.server.on("GET", ".*/status(es)?", statuses, forever=True)
    plain = side.forge.find(BRANCH)
    assert plain is not None
    pull = plain.pull
    shown = f"{pull} {side.forge.checks(pull.head_commit, 1)}"
    assert shown.count(token) == 2, "void: the adapter passes it on"
    credential = make_credential(host="127.0.0.1", secret=token)
    project = Project("127.0.0.1", "demo-owner/demo", side.server.api_url, side.server.url, credential)
    host = Host.GITHUB if is_github else Host.GITLAB
    remote = parse_remote("https://127.0.0.1/demo-owner/demo.git", forges={"127.0.0.1": host})
    with connect_forge(remote, project) as forge:
        found = forge.find(BRANCH)
        assert found is not None
        checks = forge.add_excerpts(forge.checks(found.pull.head_commit, 1))
    assert (found.pull.url, [check.name for check in checks]) == ("https://x/***", ["a ***"])
    assert token not in f"{found.pull} {checks}"
