"""A push to a branch with a ready pull request: the forge is asked, and must answer if the tree is not verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox import remotes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import PullWithText
from sandbox.git.push import send
from sandbox.models import Host, PullRequest, PullState
from sandbox.workbench.checks import gate
from sandbox.workbench.delivery import push, ready_requests
from tests.unit.conftest import refused
from tests.unit.workbench.delivery.test_pull_requests import Bench, bench

__all__ = ["bench"]

URL = "https://github.com/o/r/pull/7"


def of_another_person(bench: Bench, *, draft: bool = False, state: PullState = PullState.OPEN) -> None:
    """Another person opens a pull request for the task's branch; the task's record does not know it."""
    pull = PullRequest(
        url=URL, number=7, state=state, draft=draft, head=bench.task.branch, base="main", head_commit="0" * 40
    )
    bench.forge.pull = PullWithText(pull, "Theirs", "")


@pytest.fixture
def second(bench: Bench) -> str:
    """The branch is pushed, and the task has a second commit. Returns what the remote has."""
    with bench.workbench() as workbench:
        first = workbench.push(bench.task.id).commit
        assert workbench.task(bench.task.id).pr_url is None
    assert bench.forge.counts["connection"] == 0
    bench.commit("second")
    bench.forge.counts.clear()
    return first


def push_again(bench: Bench, require: str = "pr-ready") -> str:
    with bench.workbench(require) as workbench:
        return workbench.push(bench.task.id).commit


def test_s10_a_ready_pull_request_of_another_person_gets_no_unverified_tree(bench: Bench, second: str) -> None:
    """Control: the same push succeeds once the tree is verified."""
    of_another_person(bench)
    with refused(ErrorCode.GATE_CLOSED) as caught:
        push_again(bench)
    assert bench.upstream.oid(bench.task.branch) == second
    assert caught.value.hint.startswith("Give the profile checks")  # as the gate says without a forge
    assert URL in caught.value.hint
    bench.forge.counts.clear()
    bench.forge.verified = True
    assert push_again(bench) == bench.upstream.oid(bench.task.branch) != second
    assert bench.forge.counts == {"gate": 1, "token": 1, "connection": 1, "pull request": 1}


@pytest.mark.parametrize(
    "opened",
    [
        pytest.param(lambda bench: None, id="none"),
        pytest.param(lambda bench: of_another_person(bench, draft=True), id="a draft"),
        pytest.param(lambda bench: of_another_person(bench, state=PullState.MERGED), id="a merged one"),
        pytest.param(lambda bench: of_another_person(bench, state=PullState.CLOSED), id="a closed one"),
    ],
)
def test_what_is_not_open_and_ready_leaves_the_gate_as_it_is(
    bench: Bench, second: str, opened: Callable[[Bench], None]
) -> None:
    opened(bench)
    assert push_again(bench) != second
    assert bench.forge.counts == {"gate": 1, "token": 1, "connection": 1, "pull request": 1}


def test_without_a_gate_there_is_no_question(bench: Bench, second: str) -> None:
    of_another_person(bench)
    assert push_again(bench, "none") != second
    assert bench.forge.counts == {}


def be_unknown(monkeypatch: pytest.MonkeyPatch, protocol: str = "file") -> None:
    """The remote is of a host that no setting names."""
    forge_remote = remotes.parse_remote

    def parse_remote(text: str, **rules: Any) -> remotes.Remote:
        remote = forge_remote(text, **rules)
        return replace(remote, host=Host.UNKNOWN, protocol=protocol, hostname="git.example.com")

    monkeypatch.setattr(remotes, "parse_remote", parse_remote)


def test_s10_an_unknown_server_may_be_a_forge(bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    be_unknown(monkeypatch, "ssh")
    with refused(ErrorCode.GATE_CLOSED) as caught:
        push_again(bench)
    assert "git.example.com cannot be asked" in caught.value.brief
    assert bench.forge.counts == {"gate": 1}


def test_a_local_path_is_no_forge(bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    be_unknown(monkeypatch)
    of_another_person(bench)
    assert push_again(bench) != second
    assert bench.forge.counts == {}


def raising(code: ErrorCode, hint: str = "Store one.") -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise SandboxError(code, "No answer", details="the forge's words", hint=hint)

    return fail


SILENCES = [
    pytest.param("find_project", ErrorCode.AUTH_FAILED, id="no token"),
    pytest.param("find_project", ErrorCode.INVALID_INPUT, id="an unusable API address"),
    *(
        pytest.param("list_open", code, id=code.value)
        for code in (
            ErrorCode.AUTH_FAILED,
            ErrorCode.NOT_FOUND,
            ErrorCode.NETWORK_ERROR,
            ErrorCode.TIMEOUT,
            ErrorCode.FORGE_ERROR,
        )
    ),
]


def silence(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str, code: ErrorCode) -> None:
    monkeypatch.setattr(ready_requests if step == "find_project" else bench.forge, step, raising(code))


@pytest.mark.parametrize(("step", "code"), SILENCES)
def test_s10_no_answer_closes_the_gate_and_a_verified_tree_opens_it(
    bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch, step: str, code: ErrorCode
) -> None:
    silence(bench, monkeypatch, step, code)
    with refused(ErrorCode.GATE_CLOSED) as caught:
        push_again(bench)
    assert bench.upstream.oid(bench.task.branch) == second
    assert caught.value.reason == ready_requests.NO_ANSWER
    assert f"{code.value}: No answer\nthe forge's words" in caught.value.details
    assert caught.value.hint.startswith("Give the profile checks")  # as the gate says without a forge
    assert caught.value.hint.endswith("Store one.")
    bench.forge.verified = True
    assert push_again(bench) != second


@pytest.mark.parametrize(("step", "code"), SILENCES[:1])
def test_the_first_push_of_a_branch_needs_no_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str, code: ErrorCode
) -> None:
    """A branch that the push itself makes has no pull request. Control: the next push is refused."""
    silence(bench, monkeypatch, step, code)
    assert push_again(bench) == bench.upstream.oid(bench.task.branch)
    bench.commit("second")
    with refused(ErrorCode.GATE_CLOSED):
        push_again(bench)


def test_s10_a_first_push_whose_answer_was_lost_is_no_first_push(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch exists since then, and may have a pull request."""
    real = send.push

    def push_commit(*arguments: Any) -> None:
        real(*arguments)
        raise SandboxError(ErrorCode.NETWORK_ERROR, "The answer is lost")

    with monkeypatch.context() as patched:
        patched.setattr(push, "push_commit", push_commit)
        with refused(ErrorCode.NETWORK_ERROR):
            push_again(bench)
    first = bench.upstream.oid(bench.task.branch)
    of_another_person(bench)
    bench.commit("second")
    with refused(ErrorCode.GATE_CLOSED):
        push_again(bench)
    assert bench.upstream.oid(bench.task.branch) == first


def test_verdicts_that_are_unknown_need_the_answer_too(
    bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine the tree may be verified: with an answer the push is free, or fails as the engine did."""
    monkeypatch.setattr(gate, "find_tree_verdicts", raising(ErrorCode.ENGINE_UNAVAILABLE, "Start it."))
    with monkeypatch.context() as patched:
        silence(bench, patched, "find_project", ErrorCode.AUTH_FAILED)
        with refused(ErrorCode.GATE_CLOSED) as caught:
            push_again(bench)
    assert caught.value.hint.startswith("Start it.\n")
    of_another_person(bench)
    with refused(ErrorCode.ENGINE_UNAVAILABLE) as unknown:
        push_again(bench)
    assert URL in unknown.value.hint
    assert bench.upstream.oid(bench.task.branch) == second
    of_another_person(bench, draft=True)
    assert push_again(bench) != second


def test_the_same_commit_again_needs_no_answer(bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing. Control: the push of the next commit is refused."""
    sent = push_again(bench)
    silence(bench, monkeypatch, "find_project", ErrorCode.AUTH_FAILED)
    assert push_again(bench) == sent != second
    bench.commit("third")
    with refused(ErrorCode.GATE_CLOSED):
        push_again(bench)


def test_an_opening_asks_also_when_there_is_nothing_to_push(bench: Bench, second: str) -> None:
    """It would change the text of the pull request, which is about the tree."""
    assert push_again(bench) != second
    of_another_person(bench)
    with bench.workbench() as workbench, refused(ErrorCode.GATE_CLOSED):
        workbench.open_pull_request(bench.task.id)


def test_an_opening_reports_the_forges_own_error(bench: Bench, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the forge's answers also for a verified tree, so to verify is no advice."""
    silence(bench, monkeypatch, "list_open", ErrorCode.NETWORK_ERROR)
    with bench.workbench() as workbench, refused(ErrorCode.NETWORK_ERROR):
        workbench.open_pull_request(bench.task.id)
    assert bench.upstream.oid(bench.task.branch) == second
