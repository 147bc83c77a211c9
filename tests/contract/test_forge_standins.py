"""The stand-ins for forges say what the real ones would, and validation does fail on what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import github as pygithub
import pytest
import requests
from github.Repository import Repository

from devtools.forges import faults
from devtools.forges.exchange import Answer
from devtools.forges.fixtures import GitHub, elsewhere, forge_packages, github

__all__ = ["elsewhere", "forge_packages", "github"]

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
