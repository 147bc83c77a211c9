"""The scripted forges say what the real ones would, and validation does fail on what does not fit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import github as pygithub
import gitlab as python_gitlab
import pytest
import requests
import trustme
from github.Repository import Repository
from gitlab.v4.objects import Project

from devtools.forges import faults
from devtools.forges.exchange import Answer
from devtools.forges.fixtures import GitHub, GitLab, client_of, require_fit, scripted_github
from devtools.gitserver.client import GitClient

PULLS = "/repos/[^/]+/[^/]+/pulls"


@pytest.fixture
def repository(github: GitHub) -> Iterator[Repository]:
    """The repository, as PyGithub sees it: a client that is not ours."""
    with client_of(github) as client:
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


def test_a_pull_request_moves_late_and_stays_where_it_was_closed(github: GitHub, repository: Repository) -> None:
    first = github.push("topic")
    pull = repository.create_pull(base="main", head="topic", title="A title")
    github.rules.stale_reads = 1
    second = github.push("topic", "more")
    assert [repository.get_pull(1).head.sha, repository.get_pull(1).head.sha] == [first, second]
    pull.edit(state="closed")
    github.push("topic", "after it was closed")
    assert repository.get_pull(1).head.sha == second


def test_graphql_refuses_as_github_does(github: GitHub, repository: Repository) -> None:
    github.push("topic")
    pull = repository.create_pull(base="main", head="topic", title="A title", draft=True)
    github.rules.may_write = False
    with pytest.raises(pygithub.GithubException, match="FORBIDDEN"):
        pull.mark_ready_for_review()
    assert repository.get_pull(1).draft


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
    with pytest.raises(pytest.fail.Exception, match=r"stat is not described(?s:.)+token in GET .+: query"):
        require_fit(github)
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
    by_key = project.pipelines.get(9, lazy=True).jobs.list(iterator=True, pagination="keyset", per_page=10)
    assert [job.name for job in by_key] == [f"job {n}" for n in range(21)]
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


def test_a_push_over_https_shows_in_the_pull_request(forge_packages: None, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    with scripted_github(tmp_path, "https://storage.invalid", authority) as github:
        client = GitClient(tmp_path, ca_file, "", "x", github.token)
        client.run("clone", "--quiet", f"{github.url}/demo-owner/demo.git", "clone")
        clone, api = tmp_path / "clone", f"{github.api_url}/repos/demo-owner/demo/pulls"
        with requests.Session() as session:
            session.trust_env, session.verify = False, str(ca_file)
            session.headers["Authorization"] = f"Bearer {github.token}"
            for subject in ("one", "two"):
                client.run("commit", "--quiet", "--allow-empty", "-m", subject, cwd=clone)
                client.run("push", "--quiet", "origin", "HEAD:topic", cwd=clone)
                session.post(api, json={"title": "A title", "head": "topic", "base": "main"}, timeout=30)
            heads = [pull["head"]["sha"] for pull in session.get(api, timeout=30).json()]
        assert heads == [client.run("rev-parse", "HEAD", cwd=clone).strip()]


def test_git_over_http_needs_the_token(gitlab: GitLab, tmp_path: Path) -> None:
    url = f"{gitlab.url}/demo-owner/demo.git"
    for password, found in ((gitlab.token, True), ("wrong", False)):
        (tmp_path / password).mkdir()
        client = GitClient(tmp_path / password, tmp_path, "", "x", password)
        with nullcontext() if found else pytest.raises(subprocess.CalledProcessError):
            assert "refs/heads/main" in client.run("ls-remote", url)
