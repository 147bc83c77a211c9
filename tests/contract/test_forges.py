"""What the workbench may rely on, whichever forge it is. What one does alone: test_github and test_gitlab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import tenacity

from devtools.forges import faults
from devtools.forges.fixtures import GitHub, GitLab, elsewhere, forge_packages, github, gitlab
from devtools.forges.server import StandIn
from sandbox import retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import EXCERPT_BYTES, Forge, Project, Proposal
from sandbox.forges.github import GitHub as GitHubForge
from sandbox.forges.gitlab import GitLab as GitLabForge
from sandbox.forges.rollup import verdict_of
from sandbox.forges.table import FORGE_ROWS
from sandbox.models import CiState, CiVerdict, PullRequest, PullState

__all__ = ["elsewhere", "forge_packages", "github", "gitlab"]

BRANCH = "space-agent/x"
DRAFT = Proposal(BRANCH, "main", "Change", "Why", draft=True)


@dataclass(frozen=True)
class Side:
    """One forge and its stand-in. `list_path`, `one_path`: where pull requests are asked for; `judge`: set checks."""

    server: GitHub | GitLab
    adapter: Callable[[Project], Forge]
    list_path: str
    one_path: str
    change: str
    judge: Callable[[str, Mapping[str, str]], None]
    log: Callable[[str, str], None]

    def forge(self, *, token: str = "", path: str = "demo-owner/demo", api_url: str = "") -> Forge:
        """The adapter for its project."""
        credential = make_credential(host="127.0.0.1", username="oauth2", secret=token or self.server.token)
        api_url = api_url or self.server.api_url
        return self.adapter(Project("127.0.0.1", path, api_url, self.server.url, credential))

    def close(self, *, merged: bool = False) -> None:
        """A person closes or merges the newest pull request."""
        if isinstance(self.server, GitHub):
            pull = self.server.rules.pulls[-1]
            pull.state, pull.merged = "closed", merged
        else:
            self.server.rules.merge_requests[-1].state = "merged" if merged else "closed"


def github_side(server: GitHub) -> Side:
    """Check runs; a log is the annotations of one."""
    words = {"pass": ("completed", "success"), "fail": ("completed", "failure"), "pending": ("in_progress", None)}

    def judge(commit: str, checks: Mapping[str, str]) -> None:
        server.rules.checks[commit] = [
            {"id": n, "name": name, "status": words[state][0], "conclusion": words[state][1],
             "html_url": f"https://github.example/demo-owner/demo/runs/{n}"}
            for n, (name, state) in enumerate(checks.items(), start=1)
        ]  # fmt: skip

    def log(commit: str, text: str) -> None:
        server.rules.annotations[1] = [{"message": text}]

    pulls = "/repos/demo-owner/demo/pulls"
    return Side(server, GitHubForge, pulls, f"{pulls}/1", "PATCH", judge, log)


def gitlab_side(server: GitLab) -> Side:
    """Jobs of a pipeline, the newest one on the commit."""
    words = {"pass": "success", "fail": "failed", "pending": "running"}

    def judge(commit: str, checks: Mapping[str, str]) -> None:
        server.rules.pipelines.append({"id": 9, "sha": commit, "status": "success", "ref": BRANCH})
        server.rules.jobs[9] = [
            {"id": n, "name": name, "status": words[state]} for n, (name, state) in enumerate(checks.items(), start=1)
        ]

    def log(commit: str, text: str) -> None:
        server.rules.traces[1] = text.encode()

    requests = "/projects/demo-owner%2Fdemo/merge_requests"
    return Side(server, GitLabForge, requests, f"{requests}/1", "PUT", judge, log)


SIDES: Mapping[str, Callable[[Any], Side]] = {
    "github": github_side,
    "gitlab": gitlab_side,
}
"""One row for each kind of forge, by the fixture of its stand-in."""


def test_every_forge_has_a_row() -> None:
    assert set(FORGE_ROWS) == SIDES.keys(), "tests/contract/test_forges.py: a row in SIDES"


def list_ready(forge: Forge, head: str) -> list[PullRequest]:
    return [pull for pull in forge.list_open(head) if not pull.draft]


@pytest.fixture(params=sorted(SIDES))
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Side:
    """Each forge, with no pauses between attempts."""
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    return SIDES[request.param](request.getfixturevalue(request.param))


def test_what_was_opened_is_found_again(side: Side) -> None:
    forge, commit = side.forge(), side.server.push(BRANCH)
    assert forge.find(BRANCH) is None
    opened = forge.open(DRAFT)
    pull = opened.pull
    assert (pull.number, pull.state, pull.draft, pull.created) == (1, PullState.OPEN, True, True)
    assert (pull.head, pull.base, pull.head_commit) == (BRANCH, "main", commit)
    assert pull.url.startswith("http")
    assert (opened.title, opened.body) == ("Change", "Why")
    found = forge.find(BRANCH)
    assert found is not None
    assert found.pull == pull.model_copy(update={"created": False})
    assert (found.title, found.body) == ("Change", "Why")
    assert forge.find("space-agent/other") is None


def test_head_follows_the_branch(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    commit = side.server.push(BRANCH, "more")
    found = forge.find(BRANCH)
    assert found is not None
    assert found.pull.head_commit == commit


def test_who_comes_second_gets_the_one_that_is_there(side: Side) -> None:
    side.server.push(BRANCH)
    side.forge().open(DRAFT)
    again = side.forge().open(DRAFT)
    assert (again.pull.number, again.pull.created) == (1, False)


def test_opening_whose_answer_is_lost_opened_one(side: Side) -> None:
    side.server.push(BRANCH)
    side.server.on("POST", side.list_path, faults.lost)
    opened = side.forge().open(DRAFT)
    assert (opened.pull.number, opened.pull.created) == (1, False)
    assert side.server.count("POST", side.list_path) == 1


def test_open_one_comes_before_the_newest(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    side.close(merged=True)
    found = forge.find(BRANCH)
    assert found is not None
    assert (found.pull.number, found.pull.state) == (1, PullState.MERGED)
    assert forge.open(DRAFT).pull.number == 2
    side.close()
    found = forge.find(BRANCH)
    assert found is not None
    assert (found.pull.number, found.pull.state) == (2, PullState.CLOSED)


def test_ready_one_is_found_behind_a_newer_draft(side: Side) -> None:
    side.server.push(BRANCH)
    side.server.push("other")
    forge = side.forge()
    assert not list_ready(forge, BRANCH)
    opened = forge.open(DRAFT).pull
    assert not list_ready(forge, BRANCH)
    forge.make_ready(opened.number)
    draft = forge.open(Proposal(BRANCH, "other", "Change", "Why", draft=True)).pull
    found, (ready,) = forge.find(BRANCH), list_ready(forge, BRANCH)
    assert found is not None
    assert {pull.number for pull in forge.list_open(BRANCH)} == {1, draft.number}
    assert (found.pull.number, ready.number, ready.url, ready.draft) == (draft.number, 1, opened.url, False)
    assert not list_ready(forge, "other")


def test_closed_one_is_not_ready(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.make_ready(forge.open(DRAFT).pull.number)
    assert list_ready(forge, BRANCH)
    side.close(merged=True)
    assert not list_ready(forge, BRANCH)


def test_body_is_replaced_and_the_title_stays(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    forge.replace_body(1, "New\n\n`x`")
    found = forge.find(BRANCH)
    assert found is not None
    assert (found.title, found.body, found.pull.draft) == ("Change", "New\n\n`x`", True)


def test_draft_is_made_ready_once(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    forge.make_ready(1)
    found = forge.find(BRANCH)
    assert found is not None
    assert (found.title, found.pull.draft) == ("Change", False)
    changes = [r for r in side.server.requests if r.method != "GET"]
    forge.make_ready(1)
    assert [r for r in side.server.requests if r.method != "GET"] == changes


def test_checks_are_those_of_the_commit(side: Side) -> None:
    commit = side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    assert tuple(forge.checks(commit, 1)) == ()
    side.judge(commit, {"test": "pass", "lint": "pass"})
    checks = forge.checks(commit, 1)
    assert [(c.name, c.state) for c in checks] == [("lint", CiState.PASS), ("test", CiState.PASS)]
    assert tuple(forge.checks(side.server.push(BRANCH, "more"), 1)) == ()


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (("pass", "pass"), CiVerdict.PASS),
        (("pass", "pending"), CiVerdict.PENDING),
        (("pending", "fail"), CiVerdict.FAIL),
    ],
)
def test_checks_sum_up(side: Side, states: tuple[str, str], verdict: CiVerdict) -> None:
    commit = side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    side.judge(commit, dict(zip(("a", "b"), states, strict=True)))
    assert verdict_of(forge.checks(commit, 1)) is verdict


def test_checks_of_all_pages_count(side: Side) -> None:
    commit = side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    side.judge(commit, {f"check {n:03}": "fail" if n == 100 else "pass" for n in range(101)})
    checks = forge.checks(commit, 1)
    assert len(checks) == 101
    assert verdict_of(checks) is CiVerdict.FAIL


def test_failed_check_has_the_end_of_its_log(side: Side) -> None:
    commit = side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    side.judge(commit, {"test": "fail", "lint": "pass"})
    side.log(commit, "\x1b[31mAssertionError\x1b[0m: \u202e4 != 5")
    lint, test = forge.add_excerpts(forge.checks(commit, 1))
    assert "AssertionError: \\u202e4 != 5" in test.excerpt
    assert "\x1b" not in test.excerpt
    assert len(test.excerpt.encode()) <= EXCERPT_BYTES
    assert lint.excerpt == ""


def test_refused_token_is_told(side: Side) -> None:
    with pytest.raises(SandboxError) as raised:
        side.forge(token="not-the-token-of-this-server").find(BRANCH)
    assert raised.value.code is ErrorCode.AUTH_FAILED
    assert "not-the-token" not in str(raised.value.payload())


def test_unknown_project_is_told(side: Side) -> None:
    with pytest.raises(SandboxError) as raised:
        side.forge(path="demo-owner/other").find(BRANCH)
    assert raised.value.code is ErrorCode.NOT_FOUND


def test_question_is_repeated_while_the_forge_fails_and_a_change_is_not(side: Side) -> None:
    side.server.push(BRANCH)
    forge = side.forge()
    forge.open(DRAFT)
    side.server.on("GET", side.list_path, faults.server_error(502), faults.lost)
    assert forge.find(BRANCH) is not None
    side.server.on(side.change, side.one_path, faults.server_error(502))
    with pytest.raises(SandboxError) as raised:
        forge.replace_body(1, "New")
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert side.server.count(side.change, side.one_path) == 1


def test_redirect_takes_no_token_along(side: Side, elsewhere: StandIn) -> None:
    side.server.on("GET", side.list_path, faults.redirect(301, f"{elsewhere.url}/other"))
    with pytest.raises(SandboxError) as raised:
        side.forge().find(BRANCH)
    assert raised.value.code is ErrorCode.FORGE_ERROR
    assert elsewhere.requests == []


def test_forge_that_is_away_is_a_network_error(side: Side) -> None:
    with pytest.raises(SandboxError) as raised:
        side.forge(api_url="http://127.0.0.1:1/api/v4").find(BRANCH)
    assert raised.value.code is ErrorCode.NETWORK_ERROR
