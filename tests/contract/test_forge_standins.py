"""The stand-ins for forges say what the real ones would, and validation does fail on what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import github as pygithub
import gitlab as python_gitlab
import pytest
import requests
from github.Repository import Repository
from gitlab.v4.objects import Project

from devtools.forges import faults, gitlabapi, graphql, openapi, packages
from devtools.forges.cases import asked_and_answered, names, recorded
from devtools.forges.exchange import Answer, Request
from devtools.forges.fixtures import GitHub, GitLab, elsewhere, forge_packages, github, gitlab
from devtools.forges.server import StandIn

__all__ = ["elsewhere", "forge_packages", "github", "gitlab"]

PULLS = "/repos/[^/]+/[^/]+/pulls"


@pytest.fixture
def repository(github: GitHub) -> Iterator[Repository]:
    """The repository, as the product's client sees it."""
    auth = pygithub.Auth.Token(github.token)
    with pygithub.Github(
        auth=auth, base_url=github.api_url, retry=None, seconds_between_requests=0, seconds_between_writes=0
    ) as client:
        yield client.get_repo("demo-owner/demo")


def test_a_pull_request_follows_its_branch(github: GitHub, repository: Repository) -> None:
    first = github.push("topic")
    pull = repository.create_pull(base="main", head="topic", title="A title", body="Words", draft=True)
    assert (pull.head.sha, pull.draft, pull.number) == (first, True, 1)
    assert repository.get_pull(1).head.sha != github.push("topic", "more") == repository.get_pull(1).head.sha
    assert [p.number for p in repository.get_pulls(head="demo-owner:topic", base="main")] == [1]
    pull.mark_ready_for_review()
    assert not repository.get_pull(1).draft
    pull.edit(title="Another", body="New", state="closed")
    assert (repository.get_pull(1).title, repository.get_pull(1).state) == ("Another", "closed")


def test_a_pull_request_is_refused_as_github_does(github: GitHub, repository: Repository) -> None:
    github.push("topic")
    repository.create_pull(base="main", head="topic", title="A title")
    for head, words in (("topic", "already exists"), ("gone", '"field": "head"'), ("main", "No commits between")):
        with pytest.raises(pygithub.GithubException, match=words) as refused:
            repository.create_pull(base="main", head=head, title="A title")
        assert refused.value.status == 422
    github.rules.may_write = False
    with pytest.raises(pygithub.GithubException, match="not accessible"):
        repository.get_pull(1).edit(title="Another")


def test_checks_and_statuses_are_those_of_a_commit(github: GitHub, repository: Repository) -> None:
    oid = github.push("topic")
    github.rules.checks[oid] = [{"name": f"check {n}", "status": "in_progress", "conclusion": None} for n in range(31)]
    github.rules.statuses[oid] = [{"context": "old", "state": "failure"}]
    runs = list(repository.get_commit(oid).get_check_runs())
    assert [run.name for run in runs] == [f"check {n}" for n in range(31)]
    assert repository.get_commit(oid).get_combined_status().state == "failure"


def test_what_does_not_fit_the_description_is_told(github: GitHub) -> None:
    """The control of all other tests: requests and answers of a wrong shape are found, each by name."""
    url, headers = f"{github.api_url}/repos/demo-owner/demo/pulls", {"Authorization": f"token {github.token}"}
    github.on("GET", PULLS, faults.server_error(), Answer(200, [{"number": "1"}]))
    requests.get(url, headers=headers, timeout=30)
    assert github.problems == []
    requests.get(url, params={"stat": "open"}, headers=headers, timeout=30)
    requests.patch(url, headers=headers, timeout=30)
    github.push("topic")
    wrong = {"title": 1, "head": "topic", "base": "main", "drft": True}
    requests.post(url, json=wrong, headers=headers, timeout=30)
    query = {"query": "mutation { markPullRequestReadyForReview(input: {}) { pullRequest { isReady } } }"}
    requests.post(f"{github.url}/api/graphql", json=query, headers=headers, timeout=30)
    requests.get(f"{url}?page={github.token}", headers=headers, timeout=30)
    said, github.problems = "\n".join(github.problems), []
    for words in ("query: stat is not described",
                  "$[0].number '1' is not of type 'integer'", "no such operation is described",
                  "$.title 1 is not of type 'string'", "drft is not described", "Cannot query field 'isReady'",
                  "required field 'pullRequestId'", "page: $"):  # fmt: skip
        assert words in said, said
    assert github.stray_tokens() == ["GET /repos/demo-owner/demo/pulls: query"]
    github.requests.clear()


@pytest.fixture
def project(gitlab: GitLab) -> Project:
    """The project, as the product's client sees it."""
    return python_gitlab.Gitlab(gitlab.url, private_token=gitlab.token).projects.get("demo-owner/demo")


def test_a_merge_request_follows_its_branch(gitlab: GitLab, project: Project) -> None:
    first = gitlab.push("topic")
    made = {"source_branch": "topic", "target_branch": "main", "title": "Draft: A title", "description": "Words"}
    mr = project.mergerequests.create(made)
    assert (mr.sha, mr.draft, mr.iid) == (first, True, 1)
    second = gitlab.push("topic", "more")
    gitlab.rules.stale_reads = 1
    assert [project.mergerequests.get(1).sha, project.mergerequests.get(1).sha] == [first, second]
    mr.title = "A title"
    mr.save()
    listed = project.mergerequests.list(source_branch="topic", state="opened", get_all=True)
    assert [(m.iid, m.draft) for m in listed] == [(1, False)]
    with pytest.raises(python_gitlab.GitlabCreateError, match="Another open merge request") as refused:
        project.mergerequests.create(made)
    assert refused.value.response_code == 409


def test_pipelines_and_jobs_are_those_of_a_commit(gitlab: GitLab, project: Project) -> None:
    oid = gitlab.push("topic")
    project.mergerequests.create({"source_branch": "topic", "target_branch": "main", "title": "A title"})
    gitlab.rules.pipelines.append({"id": 9, "sha": oid, "status": "failed", "ref": "topic"})
    gitlab.rules.jobs[9] = [{"id": n, "name": f"job {n}"} for n in range(21)]
    gitlab.rules.traces[3] = b"line\n"
    gitlab.rules.statuses[oid] = [{"name": "external", "status": "pending"}]
    assert project.mergerequests.get(1).head_pipeline["status"] == "failed"
    assert [p.id for p in project.mergerequests.get(1).pipelines.list(get_all=True)] == [9]
    jobs = project.pipelines.get(9, lazy=True).jobs.list(get_all=True)
    assert [job.name for job in jobs] == [f"job {n}" for n in range(21)]
    assert project.jobs.get(3, lazy=True).trace() == b"line\n"
    statuses = project.commits.get(oid, lazy=True).statuses.list(get_all=True)
    assert [status.name for status in statuses] == ["external"]


def test_what_does_not_fit_gitlabs_description_is_told(gitlab: GitLab) -> None:
    url, headers = f"{gitlab.api_url}/projects/7/merge_requests", {"PRIVATE-TOKEN": gitlab.token}
    gitlab.on("GET", ".+", Answer(200, [{"iid": "1", "draf": True}]), Answer(418, {"message": "no"}))
    requests.get(url, params={"stat": "opened"}, headers=headers, timeout=30)
    requests.get(url, headers=headers, timeout=30)
    requests.post(url, json={"source_branch": "topic", "draft": True}, headers=headers, timeout=30)
    said, gitlab.problems = "\n".join(gitlab.problems), []
    for words in ("query: stat is not described", "'draf' was unexpected", "no such status is described",
                  "draft is not described", "'title' is a required property"):  # fmt: skip
        assert words in said, said


@pytest.mark.parametrize("name", names("github"))
def test_recorded_answers_of_github_fit_its_description(name: str, forge_packages: None) -> None:
    asked, answer = asked_and_answered("github", name)
    method, path = asked.split()
    request = Request(method, path, "", {}, b'{"query": "query { viewer { login } }"}', "https://api.github.com")
    if path == "/graphql":
        assert graphql.misanswered(graphql.load(packages.GITHUB_GRAPHQL), request, answer) == []
    else:
        assert openapi.load(packages.GITHUB_OPENAPI).misanswered(request, answer) == []


@pytest.mark.parametrize("name", names("gitlab"))
def test_recorded_answers_of_gitlab_fit_its_description(name: str) -> None:
    asked, answer = asked_and_answered("gitlab", name)
    method, path = asked.split()
    request = Request(method, path, "", {}, b"", "https://gitlab.com/api/v4")
    assert openapi.OpenApi(gitlabapi.description()).misanswered(request, answer) == []


def _asked(github: GitHub, method: str = "GET", **words: object) -> requests.Response:
    headers = {"Authorization": f"token {github.token}"}
    url = f"{github.api_url}/repos/demo-owner/demo/pulls"
    return requests.request(method, url, headers=headers, json=words or None, timeout=30)


def test_answers_come_in_turn_and_then_as_usual(github: GitHub) -> None:
    github.on("GET", PULLS, recorded("github", "secondary-rate-limit-429"), faults.server_error(503))
    github.on("POST", PULLS, recorded("github", "archived"), forever=True)
    assert [_asked(github).status_code for _ in range(3)] == [429, 503, 200]
    words = {"title": "x", "head": "topic", "base": "main"}
    assert [_asked(github, "POST", **words).status_code for _ in range(3)] == [403, 403, 403]
    assert (github.count("GET", PULLS), github.count("POST", PULLS)) == (3, 3)


def test_an_answer_is_lost_after_the_work_is_done(github: GitHub) -> None:
    github.push("topic")
    github.on("POST", PULLS, faults.lost)
    with pytest.raises(requests.ConnectionError):
        _asked(github, "POST", title="x", head="topic", base="main")
    assert [pull["number"] for pull in _asked(github).json()] == [1]


@pytest.mark.parametrize("spoil", [faults.cut, faults.stalled], ids=["cut", "stalled"])
def test_half_an_answer_is_no_answer(github: GitHub, spoil: faults.Spoil) -> None:
    github.push("topic")
    _asked(github, "POST", title="x", head="topic", base="main")
    github.on("GET", PULLS, spoil)
    with pytest.raises(requests.RequestException):
        requests.get(f"{github.api_url}/repos/demo-owner/demo/pulls", timeout=0.2,
                     headers={"Authorization": f"token {github.token}"})  # fmt: skip


def test_an_answer_may_be_long_slow_or_nonsense(github: GitHub) -> None:
    github.on("GET", PULLS, faults.padded(10_000_000), faults.dribbling, faults.not_json())
    assert len(_asked(github).content) > 10_000_000
    assert _asked(github).json() == []
    with pytest.raises(ValueError, match="Expecting value"):
        _asked(github).json()


def test_a_token_that_goes_along_to_another_host_is_seen(github: GitHub, elsewhere: StandIn) -> None:
    log = f"{github.api_url}/repos/demo-owner/demo/actions/jobs/5/logs"
    headers = {"Authorization": f"token {github.token}"}
    assert requests.get(log, headers=headers, timeout=30).url == f"{elsewhere.url}/logs/5?sig=signed"
    assert ([r.path for r in elsewhere.requests], elsewhere.saw(github.token)) == (["/logs/5"], False)
    requests.get(f"{elsewhere.url}/logs/5", headers=headers, timeout=30)
    assert elsewhere.saw(github.token)


def test_an_answer_that_is_known_is_not_sent_again(github: GitHub) -> None:
    first = _asked(github)
    headers = {"Authorization": f"token {github.token}", "If-None-Match": first.headers["ETag"]}
    again = requests.get(first.url, headers=headers, timeout=30)
    assert (again.status_code, again.content) == (304, b"")
