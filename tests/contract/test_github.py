"""GitHub's adapter alone, against recorded cases; what all forges do alike is in tests/contract/test_forges.py."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import tenacity

from devtools.forges import faults
from devtools.forges.cases import asked_and_answered, names, recorded
from devtools.forges.exchange import Answer
from devtools.forges.fixtures import GitHub as StandIn
from devtools.forges.fixtures import elsewhere, forge_packages, github
from devtools.forges.github import Pull
from devtools.forges.server import Elsewhere
from devtools.forges.server import StandIn as Other
from sandbox import retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges import github as adapter
from sandbox.forges import http_session
from sandbox.forges.forge import Project, Proposal
from sandbox.forges.github import GitHub
from sandbox.forges.github_answers import excerpt_of_log
from sandbox.models import CiCheck, CiState, PullRequest, PullState

__all__ = ["elsewhere", "forge_packages", "github"]

BRANCH = "topic"
PULLS = "/repos/demo-owner/demo/pulls"
DRAFT = Proposal(BRANCH, "main", "Change", "Why", draft=True)
MEANINGS = {
    "archived": (ErrorCode.FORGE_ERROR, "archived"),
    "bad-credentials": (ErrorCode.AUTH_FAILED, "expired"),
    "body-too-long": (ErrorCode.FORGE_ERROR, "too long"),
    "drafts-unsupported": (ErrorCode.FORGE_ERROR, "--ready"),
    "duplicate-pull": (ErrorCode.CONFLICT, "already"),
    "graphql-forbidden": (ErrorCode.AUTH_FAILED, "not accessible"),
    "graphql-rate-limit": (ErrorCode.FORGE_ERROR, "Wait "),
    "no-commits": (ErrorCode.CONFLICT, "no commits that its base lacks"),
    "primary-rate-limit": (ErrorCode.FORGE_ERROR, "Wait "),
    "renamed": (ErrorCode.FORGE_ERROR, "clone it by its new URL"),
    "saml": (ErrorCode.AUTH_FAILED, "single sign-on"),
    "secondary-rate-limit": (ErrorCode.FORGE_ERROR, "Wait 60 s"),
    "secondary-rate-limit-429": (ErrorCode.FORGE_ERROR, "Wait 60 s"),
    "server-error": (ErrorCode.FORGE_ERROR, "HTTP 500"),
    "token-without-permission": (ErrorCode.AUTH_FAILED, "pull_requests=write"),
    "token-without-scope": (ErrorCode.AUTH_FAILED, "lacks: repo"),
    "unavailable": (ErrorCode.FORGE_ERROR, "HTTP 503"),
    "unknown-head": (ErrorCode.NOT_FOUND, "the head or the base branch"),
}


@pytest.fixture
def forge(github: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    credential = make_credential(host="127.0.0.1", username="x", secret=github.token)
    found = GitHub(Project("127.0.0.1", "demo-owner/demo", github.api_url, github.url, credential))
    yield found
    found.close()


def test_every_recorded_refusal_has_a_meaning() -> None:
    assert sorted(MEANINGS) == names("github")


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_a_recorded_refusal_is_told_apart(github: StandIn, forge: GitHub, name: str) -> None:
    asked, answer = asked_and_answered("github", name)
    method, _, path = asked.partition(" ")
    github.push(BRANCH)
    github.rules.pulls += [Pull(1, BRANCH, "main", "x", "", True)] if path == "/graphql" else []
    github.on(method, path, answer, forever=True)
    with pytest.raises(SandboxError) as caught:
        _ask(forge, method, path)
    code, word = MEANINGS[name]
    told = caught.value
    assert told.code is code
    assert word in f"{told.brief} {told.details} {told.hint}"
    assert github.token not in repr(told.payload())


def _ask(forge: GitHub, method: str, path: str) -> None:
    if path == "/graphql":
        forge.make_ready(1)
    elif method == "POST":
        forge.open(DRAFT)
    else:
        forge.find(BRANCH)


def test_a_short_pause_is_kept_and_a_long_one_only_told(
    github: StandIn, forge: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    limited = recorded("github", "secondary-rate-limit-429")
    github.on("GET", PULLS, replace(limited, headers={"Retry-After": "7"}))
    assert forge.find(BRANCH) is None
    assert slept == [7.0]
    github.on("GET", PULLS, replace(limited, headers={"Retry-After": "31"}), forever=True)
    with pytest.raises(http_session.TransientForgeError) as caught:
        forge.find(BRANCH)
    assert (caught.value.wait_s, slept) == (31.0, [7.0])


def test_a_server_that_names_our_token_does_not_get_it_into_the_error(github: StandIn, forge: GitHub) -> None:
    github.on("GET", PULLS, Answer(400, {"message": f"bad token {github.token}"}, checked=False))
    with pytest.raises(SandboxError) as caught:
        forge.find(BRANCH)
    assert "bad token ***" in caught.value.details


def test_a_pull_request_of_a_fork_is_not_ours(github: StandIn, forge: GitHub) -> None:
    github.push(BRANCH)
    github.rules.pulls.append(Pull(1, BRANCH, "main", "from a fork", "", False, fork="demo-owner/other"))
    assert forge.find(BRANCH) is None
    assert forge.open(DRAFT).pull.number == 2


def test_a_fork_that_is_gone_is_not_ours(github: StandIn, forge: GitHub) -> None:
    opened = _opened(github, forge)
    github.on("GET", PULLS, lambda answer: replace(answer, body=[_without_home(p) for p in answer.body], checked=False))
    assert opened.state is PullState.OPEN
    assert forge.find(BRANCH) is None


def _without_home(pull: dict[str, dict[str, object]]) -> dict[str, object]:
    return {**pull, "head": {**pull["head"], "repo": None}}


def _opened(github: StandIn, forge: GitHub) -> PullRequest:
    github.push(BRANCH)
    return forge.open(DRAFT).pull


def test_the_log_of_a_failed_job_comes_from_elsewhere_without_the_token(
    github: StandIn, forge: GitHub, elsewhere: Other
) -> None:
    lines = [*(f"line {n}" for n in range(100)), "##[error]Process completed with exit code 1.", "Cleaning up"]
    text = "\n".join(f"2024-01-01T00:00:00.0000000Z {line}" for line in lines).encode()
    assert isinstance(elsewhere.rules, Elsewhere)
    elsewhere.rules.content = lambda _request: text
    excerpt = _explained(github, forge)
    assert excerpt.splitlines()[-1] == "##[error]Process completed with exit code 1."
    assert "line 99" in excerpt
    assert "line 1\n" not in excerpt
    assert elsewhere.requests
    assert not elsewhere.saw(github.token)


def test_a_log_that_is_gone_is_replaced_by_annotations(github: StandIn, forge: GitHub) -> None:
    github.on("GET", ".*/actions/jobs/77/logs", Answer(410, {"message": "Gone"}, checked=False))
    github.rules.annotations[77] = [{"message": "from the annotation"}]
    assert "from the annotation" in _explained(github, forge)


def test_a_log_in_a_place_where_no_logs_are_is_not_fetched(
    github: StandIn, forge: GitHub, elsewhere: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter.GitHub, "_is_log_host", lambda _self, hostname: hostname == "logs.example")
    github.rules.annotations[77] = [{"message": "from the annotation"}]
    assert "from the annotation" in _explained(github, forge)
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("hostname", "holds"),
    [
        ("127.0.0.1", True),
        ("results-receiver.actions.githubusercontent.com", True),
        ("productionresultssa1.blob.core.windows.net", True),
        ("evil.example", False),
        ("actions.githubusercontent.com.evil.example", False),
        ("", False),
    ],
)
def test_logs_are_fetched_from_the_forge_and_from_where_github_keeps_them(
    forge: GitHub, hostname: str, holds: bool
) -> None:
    assert forge._is_log_host(hostname) is holds


def test_an_excerpt_is_the_end_of_a_log_without_a_marked_error() -> None:
    assert excerpt_of_log("\n".join(f"line {n}" for n in range(100))).splitlines()[0] == "line 60"
    assert excerpt_of_log("a\x1b[31mred\x1b[0m") == "ared"


def _explained(github: StandIn, forge: GitHub) -> str:
    url = f"{github.url}/demo-owner/demo/actions/runs/5/job/77"
    (found,) = forge.add_excerpts([CiCheck(name="unit", state=CiState.FAIL, url=url)])
    return found.excerpt


JOBS = {"unit": ("completed", "success"), "lint": ("completed", "failure"), "slow": ("queued", None)}


def test_a_token_that_may_not_read_check_runs_is_told_what_actions_say(github: StandIn, forge: GitHub) -> None:
    commit = github.push(BRANCH)
    github.rules.checks[commit] = [{"name": "other app", "status": "completed", "conclusion": "success"}]
    assert [check.name for check in forge.checks(commit, 1)] == ["other app"]
    assert forge.unseen == ""
    github.rules.reads_checks = False
    run = {"workflow_id": 1, "event": "push", "name": "CI", "status": "completed"}
    github.rules.workflow_runs[commit] = [
        {"id": 11, "run_number": 2, **run},
        {"id": 10, "run_number": 1, **run},
        {"id": 12, "run_number": 1, **run, "workflow_id": 2, "name": "broken", "conclusion": "startup_failure"},
    ]
    github.rules.jobs[10] = [{"id": 1, "name": "replaced", "status": "completed", "conclusion": "failure"}]
    github.rules.jobs[11] = [
        {"id": n, "name": name, "status": status, "conclusion": conclusion}
        for n, (name, (status, conclusion)) in enumerate(JOBS.items())
    ]
    github.rules.statuses[commit] = [{"context": "style", "state": "success"}]
    found = {check.name: check.state for check in forge.checks(commit, 1)}
    assert found == {
        "broken": CiState.FAIL, "lint": CiState.FAIL, "slow": CiState.PENDING, "style": CiState.PASS,
        "unit": CiState.PASS,
    }  # fmt: skip
    assert "check runs" in forge.unseen


def test_not_yet_is_an_error_and_no_loop(github: StandIn, forge: GitHub) -> None:
    github.on("GET", PULLS, Answer(202, {}, checked=False), forever=True)
    with pytest.raises(SandboxError) as caught:
        forge.find(BRANCH)
    assert caught.value.code is ErrorCode.FORGE_ERROR
    assert github.count("GET", PULLS) == retries.ATTEMPTS


def test_an_answer_whose_addresses_hold_control_characters_is_refused(github: StandIn, forge: GitHub) -> None:
    _opened(github, forge)
    spoiled = lambda answer: replace(answer, body=[{**p, "html_url": "https://x/\x1b[31m"} for p in answer.body], checked=False)  # noqa: E731, E501 # fmt: skip
    github.on("GET", PULLS, spoiled)
    with pytest.raises(SandboxError) as caught:
        forge.find(BRANCH)
    assert caught.value.code is ErrorCode.FORGE_ERROR


def test_what_the_token_may_not_change_is_named(github: StandIn, forge: GitHub) -> None:
    github.push(BRANCH)
    github.rules.may_write = False
    with pytest.raises(SandboxError) as caught:
        forge.open(DRAFT)
    assert caught.value.code is ErrorCode.AUTH_FAILED


def test_lost_questions_are_asked_again(github: StandIn, forge: GitHub) -> None:
    github.on("GET", PULLS, faults.lost, faults.cut)
    assert forge.find(BRANCH) is None


@pytest.mark.parametrize("said", ["x", 5, [1], {"pullRequest": "x"}, {"pullRequest": {}}, {"pullRequest": None}, None])
def test_nonsense_after_making_one_ready_is_an_error_of_the_forge(github: StandIn, forge: GitHub, said: object) -> None:
    number = _opened(github, forge).number
    github.on("POST", "/graphql", Answer(200, {"data": {"markPullRequestReadyForReview": said}}, checked=False))
    with pytest.raises(SandboxError) as caught:
        forge.make_ready(number)
    assert caught.value.code is ErrorCode.FORGE_ERROR


@pytest.mark.parametrize("below", ["/api/v3", ""], ids=["enterprise", "github.com"])
def test_a_draft_is_made_ready_over_graphql_beside_the_api(github: StandIn, below: str) -> None:
    github.push(BRANCH)
    credential = make_credential(host="127.0.0.1", username="x", secret=github.token)
    forge = GitHub(Project("127.0.0.1", "demo-owner/demo", f"{github.url}{below}", github.url, credential))
    with closing(forge):
        forge.make_ready(forge.open(DRAFT).pull.number)
    assert not github.rules.pulls[0].draft
    assert github.count("POST", "/graphql") == 1


def test_an_unchanged_answer_is_not_sent_again(github: StandIn, forge: GitHub) -> None:
    opened = _opened(github, forge)
    assert forge.find(BRANCH) == forge.find(BRANCH)
    first, second = [request for request in github.requests if request.method == "GET"]
    assert (first.header("If-None-Match"), bool(second.header("If-None-Match"))) == ("", True)
    github.rules.pulls[0].title = "Another"
    found = forge.find(BRANCH)
    assert found is not None
    assert (found.pull.number, found.title) == (opened.number, "Another")


def test_every_request_names_our_client_and_the_version_of_the_api(github: StandIn, forge: GitHub) -> None:
    forge.make_ready(_opened(github, forge).number)
    sent = {tuple(r.header(name) for name in ("User-Agent", "X-GitHub-Api-Version")) for r in github.requests}
    assert sent == {("space-sandbox", "2022-11-28")}


def test_a_token_that_cannot_be_sent_is_an_error_that_does_not_show_it(github: StandIn) -> None:
    credential = make_credential(host="127.0.0.1", username="x", secret=f"{github.token}\u20ac")
    forge = GitHub(Project("127.0.0.1", "demo-owner/demo", github.api_url, github.url, credential))
    with closing(forge), pytest.raises(SandboxError, match="characters that are not allowed in a token") as caught:
        forge.find(BRANCH)
    assert caught.value.code is ErrorCode.AUTH_FAILED
    assert github.token not in "".join(traceback.format_exception(caught.value))
