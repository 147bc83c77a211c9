"""The emulated GitHub, validated, and how it differs from the real one."""

from __future__ import annotations

from collections.abc import Iterator

import github as pygithub
import pytest

from devtools.forges.emulator import DEVIATIONS
from devtools.forges.exchange import Answer
from devtools.forges.fixtures import EmulatedGitHub, client_of
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Project, Proposal
from sandbox.forges.github import GitHub
from sandbox.forges.rollup import verdict_of
from sandbox.models import CiState, CiVerdict

pytestmark = pytest.mark.xdist_group("emulator")


def test_the_emulator_is_a_github_but_for_what_is_known(emulated_github: EmulatedGitHub) -> None:
    first = emulated_github.repository.push("topic")
    note = {"path": "a.py", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "Unused"}
    output = {"title": "Lint", "summary": "One", "annotations": [note]}
    number = emulated_github.repository.check(first, name="lint", status="in_progress", output=output)
    with client_of(emulated_github) as client:
        repository = client.get_repo(emulated_github.repository.full_name)
        pull = repository.create_pull(base="main", head="topic", title="A title", body="Words", draft=True)
        assert (pull.head.sha, pull.draft) == (first, True)
        pull.edit(title="Another", body="New")
        assert [p.title for p in repository.get_pulls(head="demo-owner:topic", base="main")] == ["Another"]
        assert [(r.name, r.status) for r in repository.get_commit(first).get_check_runs()] == [("lint", "in_progress")]
        list(repository.get_check_run(number).get_annotations())
        with pytest.raises(pygithub.UnknownObjectException):
            pull.mark_ready_for_review()
    assert emulated_github.rules.deviated == set(DEVIATIONS), "a deviation is gone: strike it from the list"


def test_what_the_emulator_does_differently_the_scripted_github_does_right(emulated_github: EmulatedGitHub) -> None:
    """When this fails, the emulator has learnt it: use it instead."""
    emulated_github.repository.push("topic")
    with client_of(emulated_github) as client:
        repository = client.get_repo(emulated_github.repository.full_name)
        numbers = [repository.create_pull(base="main", head=h, title="x").number for h in ("topic", "topic", "gone")]
        assert numbers == [1, 2, 3]
        moved = emulated_github.repository.push("topic", "more")
        assert repository.get_pull(1).head.sha != moved


@pytest.fixture
def forge(emulated_github: EmulatedGitHub) -> Iterator[GitHub]:
    """The product's own adapter."""
    credential = make_credential(host="127.0.0.1", username="x", secret=emulated_github.token)
    server = emulated_github
    adapter = GitHub(Project("127.0.0.1", server.repository.full_name, server.api_url, server.url, credential))
    yield adapter
    adapter.close()


def test_our_adapter_opens_finds_and_describes(emulated_github: EmulatedGitHub, forge: GitHub) -> None:
    commit = emulated_github.repository.push("topic")
    assert forge.find("topic") is None
    opened = forge.open(Proposal("topic", "main", "A title", "Words", draft=True))
    assert (opened.pull.head_commit, opened.pull.draft, opened.pull.number) == (commit, True, 1)
    forge.replace_body(1, "Others")
    found = forge.find("topic")
    assert found is not None
    assert (found.title, found.body, found.pull.url) == ("A title", "Others", opened.pull.url)


def test_our_adapter_reads_check_runs(emulated_github: EmulatedGitHub, forge: GitHub) -> None:
    """The emulator has no statuses: GitHub's published example stands for them."""
    commit = emulated_github.repository.push("topic")
    example = emulated_github.rules.description.example("combined-commit-status")
    emulated_github.on("GET", ".+/status", Answer(200, {**example, "statuses": [], "total_count": 0}))
    emulated_github.repository.check(commit, name="lint", status="completed", conclusion="failure")
    emulated_github.repository.check(commit, name="test", status="queued")
    checks = forge.checks(commit, 1)
    assert [(check.name, check.state) for check in checks] == [("lint", CiState.FAIL), ("test", CiState.PENDING)]
    assert verdict_of(checks) is CiVerdict.FAIL


def test_our_adapter_is_refused_by_a_wrong_token(emulated_github: EmulatedGitHub, forge: GitHub) -> None:
    emulated_github.repository.push("topic")
    server, wrong = emulated_github, make_credential(host="127.0.0.1", username="x", secret="not-the-token")
    other = GitHub(Project("127.0.0.1", server.repository.full_name, server.api_url, server.url, wrong))
    with pytest.raises(SandboxError) as raised:
        other.open(Proposal("topic", "main", "A title", "Words", draft=True))
    assert raised.value.code is ErrorCode.AUTH_FAILED
    other.close()
