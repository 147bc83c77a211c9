"""Approvals of agents' calls: bound to exactly one call, used once, never by another. Ids: THREATS N09 to N11."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.approvals import AgentCall, fingerprint, to_canonical_json
from sandbox.config import find_resources
from sandbox.errors import ErrorCode
from sandbox.files.names import WalkLimits
from sandbox.models import Actor, Approval, ApprovalScope, ApprovalState, Risk, Task, TaskOptions, TaskStatus
from sandbox.policy.approvals import ApprovalPolicy, Decision, load_approval_policy
from sandbox.store import approvals as store
from sandbox.store.home import Home
from sandbox.store.records import save_repository
from sandbox.workbench import Workbench
from sandbox.workbench.approvals import requests
from sandbox.workbench.approvals.requests import MOST_PER_SUBJECT
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.tasks import left_out_paths
from sandbox.workspaces import changes
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

CREATE = "space_repo_create_task"
PUSH, COMMIT, OPEN_PR, CLOSE = "space_repo_push", "space_repo_commit", "space_repo_open_pr", "space_repo_close_task"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def call_of(desk: Desk, tool: str = COMMIT, task: Task | None = None, **arguments: Any) -> AgentCall:
    return desk.workbench.approval_call(tool, {"task_id": (task or desk.task).id, **arguments})


def approved(desk: Desk, call: AgentCall, scope: ApprovalScope = ApprovalScope.ONCE) -> Approval:
    asked = desk.workbench.request_approval(call)
    return desk.workbench.answer_approval(asked.id, approved=True, by="a person", scope=scope)


def serve_by_github(desk: Desk) -> None:
    """From now on the remote is on GitHub: a pull request from a local path is refused."""
    repository = desk.workbench.repository(desk.repo_id)
    save_repository(Home(desk.home), repository.model_copy(update={"remote_url": "https://github.com/acme/repo"}))


# --- the policy


def test_the_shipped_policy_asks_about_what_leaves_the_host() -> None:
    policy = load_approval_policy(find_resources("policies") / "approvals.toml", Path("/nonexistent/approvals.toml"))
    assert policy.decide("space_repo_push", Risk.FILESYSTEM_WRITE) is Decision.ASK
    assert policy.decide("space_repo_clone", Risk.FILESYSTEM_WRITE) is Decision.ASK
    assert policy.decide("space_repo_edit_file", Risk.FILESYSTEM_WRITE) is Decision.ALLOW


def test_a_decision_that_is_missing_denies() -> None:
    assert ApprovalPolicy().decide("anything", Risk.FILESYSTEM_READ) is Decision.DENY


def test_the_operator_overrides_by_key(tmp_path: Path) -> None:
    own = tmp_path / "approvals.toml"
    own.write_text('[tools]\nspace_repo_clone = "allow"\nspace_repo_commit = "deny"\n[risk]\nshell = "ask"\n')
    policy = load_approval_policy(find_resources("policies") / "approvals.toml", own)
    assert policy.decide("space_repo_clone", Risk.FILESYSTEM_WRITE) is Decision.ALLOW
    assert policy.decide("space_repo_commit", Risk.FILESYSTEM_WRITE) is Decision.DENY
    assert policy.decide("space_repo_run_check", Risk.SHELL) is Decision.ASK
    assert policy.decide("space_repo_push", Risk.FILESYSTEM_WRITE) is Decision.ASK


@pytest.mark.parametrize(
    "text", ["[risk]\nshell = 'perhaps'\n", "[riks]\n", "not toml", "risk = 3\n", "expires_s = 0\n"]
)
def test_a_policy_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    own = tmp_path / "approvals.toml"
    own.write_text(text)
    with refused(ErrorCode.POLICY_VIOLATION):
        load_approval_policy(find_resources("policies") / "approvals.toml", own)


def test_a_decision_about_a_tool_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Else a person believes that a call is denied, and it is asked about or allowed."""
    own = tmp_path / "approvals.toml"
    own.write_text('[tools]\nspace_repo_psuh = "deny"\nrm = "deny"\n')
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        load_approval_policy(find_resources("policies") / "approvals.toml", own)
    assert str(own) in caught.value.brief
    assert caught.value.details.splitlines() == [
        "tools.rm: there is no such tool",
        "tools.space_repo_psuh: there is no such tool; did you mean space_repo_push?",
    ]


# --- fingerprints

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.text(max_size=6), _VALUES, max_size=4)


@pytest.mark.slow
@given(_ARGUMENTS)
def test_the_order_of_keys_makes_no_other_call(arguments: dict[str, Any]) -> None:
    backwards = dict(reversed(arguments.items()))
    assert fingerprint(AgentCall("t", arguments, "p")) == fingerprint(AgentCall("t", backwards, "p"))


@given(_ARGUMENTS, _ARGUMENTS)
def test_other_arguments_make_another_call(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = to_canonical_json(one) == to_canonical_json(other)
    assert (fingerprint(AgentCall("t", one, "p")) == fingerprint(AgentCall("t", other, "p"))) == same


@pytest.mark.parametrize(
    "other",
    [
        AgentCall("u", {"a": 1}, "p", "task", "repo", "tree"),
        AgentCall("t", {"a": 2}, "p", "task", "repo", "tree"),
        AgentCall("t", {"a": True}, "p", "task", "repo", "tree"),
        AgentCall("t", {"a": "1"}, "p", "task", "repo", "tree"),
        AgentCall("t", {"a": 1, "b": None}, "p", "task", "repo", "tree"),
        AgentCall("t", {"a": 1}, "q", "task", "repo", "tree"),
        AgentCall("t", {"a": 1}, "p", "other", "repo", "tree"),
        AgentCall("t", {"a": 1}, "p", "task", "other", "tree"),
        AgentCall("t", {"a": 1}, "p", "task", "repo", "other"),
    ],
    ids=["tool", "value", "type", "text", "argument", "policy", "task", "repository", "state"],
)
def test_n09_a_fingerprint_binds_everything(other: AgentCall) -> None:
    assert fingerprint(other) != fingerprint(AgentCall("t", {"a": 1}, "p", "task", "repo", "tree"))


# --- the attacks


def test_an_approved_call_goes_on_once(desk: Desk) -> None:
    call = call_of(desk, message="m")
    assert not desk.workbench.use_approval(call)
    done = approved(desk, call)
    assert desk.workbench.use_approval(call_of(desk, message="m"))
    assert desk.workbench.approval(done.id).state is ApprovalState.USED
    assert not desk.workbench.use_approval(call), "a replay"


def test_n09_changed_arguments_are_not_approved(desk: Desk) -> None:
    approved(desk, call_of(desk, message="m"))
    assert not desk.workbench.use_approval(call_of(desk, message="n"))
    assert not desk.workbench.use_approval(call_of(desk, message="m "))
    assert desk.workbench.use_approval(call_of(desk, message="m")), "the control"


def test_n09_another_task_is_not_approved(desk: Desk) -> None:
    other = desk.workbench.create_task(desk.repo_id, "other")
    approved(desk, call_of(desk, message="m"))
    assert not desk.workbench.use_approval(call_of(desk, task=other, message="m"))


def test_n09_another_tool_is_not_approved(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "m")  # a push of no commit would be refused before any approval is looked at
    approved(desk, call_of(desk, COMMIT, message="m"), ApprovalScope.TASK)
    assert not desk.workbench.use_approval(call_of(desk, PUSH, message="m"))


def test_n10_files_that_change_after_the_question_are_not_approved(desk: Desk) -> None:
    desk.write("f", b"shown to the person\n")
    approved(desk, call_of(desk, message="m"))
    desk.write("f", b"swapped\n")
    assert not desk.workbench.use_approval(call_of(desk, message="m"))


def test_n10_files_that_change_between_approval_and_commit_are_not_committed(desk: Desk) -> None:
    desk.write("f", b"shown to the person\n")
    call = call_of(desk, message="m")
    approved(desk, call)
    assert desk.workbench.use_approval(call)
    desk.write("f", b"swapped\n")
    with refused(ErrorCode.CONFLICT):
        desk.workbench.commit(desk.task.id, "m", expected_tree=call.state)
    assert desk.workbench.task(desk.task.id).head_commit == desk.task.head_commit
    desk.write("f", b"shown to the person\n")
    assert desk.workbench.commit(desk.task.id, "m", expected_tree=call.state).tree == call.state.split(" ")[0]


def test_f17_another_commit_than_the_approved_one_is_not_pushed(desk: Desk) -> None:
    desk.write("f", b"one\n")
    first = desk.workbench.commit(desk.task.id, "one").commit
    call = call_of(desk, PUSH)
    assert call.state.startswith(f"{first} ")
    approved(desk, call)
    assert desk.workbench.use_approval(call)
    desk.write("f", b"two\n")
    desk.workbench.commit(desk.task.id, "two")
    with refused(ErrorCode.CONFLICT):
        desk.workbench.push(desk.task.id, expected_commit=call.state)


def _close(desk: Desk, state: str | None) -> object:
    return desk.workbench.close_task(desk.task.id, delete_worktree=True, discard=True, expected_tree=state)


def _restore(desk: Desk, state: str | None) -> object:
    return desk.workbench.restore(desk.task.id, "head", expected_tree=state)


@pytest.mark.parametrize(
    ("tool", "act"), [("space_repo_close_task", _close), ("space_repo_restore", _restore)], ids=["close", "restore"]
)
def test_n10_work_that_was_added_after_an_approval_is_not_ended(
    desk: Desk, tool: str, act: Callable[[Desk, str | None], object]
) -> None:
    """Control: without an approval to bind the same call succeeds, and with the approved state, too."""
    desk.write("f", b"shown to the person\n")
    call = call_of(desk, tool)
    approved(desk, call)
    assert desk.workbench.use_approval(call)
    desk.write("f", b"more work\n")
    with refused(ErrorCode.CONFLICT):
        act(desk, call.state)
    assert (desk.root / "f").read_bytes() == b"more work\n"
    assert desk.workbench.task(desk.task.id).status is not TaskStatus.CLOSED
    desk.write("f", b"shown to the person\n")
    act(desk, call.state)


def test_n10_a_clean_is_bound_to_the_commit_it_was_approved_on(desk: Desk) -> None:
    """Control: on that commit the same call succeeds."""
    desk.write("f", b"one\n")
    desk.workbench.commit(desk.task.id, "one")
    call = call_of(desk, "space_repo_clean")
    approved(desk, call)
    assert desk.workbench.use_approval(call)
    desk.workbench.clean_task(desk.task.id, expected_commit=call.state)
    desk.write("f", b"two\n")
    desk.workbench.commit(desk.task.id, "two")
    (desk.root / "ignored").write_bytes(b"x")
    with refused(ErrorCode.CONFLICT):
        desk.workbench.clean_task(desk.task.id, expected_commit=call.state)
    assert (desk.root / "ignored").exists()


@pytest.mark.parametrize("limit", [0, 1024], ids=["by times", "by content"])
def test_n10_a_clean_deletes_what_was_there_when_it_was_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Control: the commit alone does not tell, and with the content as it was the same call succeeds."""
    monkeypatch.setattr(left_out_paths, "CONTENT_BYTES", limit)
    desk.write("core", b"seen")
    desk.write("new/deep/f", b"seen")
    (desk.root / "new" / "link").symlink_to("seen")
    paths = ["core", "new/"]
    call = call_of(desk, "space_repo_clean", without=paths)
    approved(desk, call)
    assert call.state.startswith(f"{desk.task.head_commit} sha256:")
    for change in (
        lambda: desk.write("core", b"work"),
        lambda: desk.write("new/deep/more", b"work"),
        lambda: (desk.root / "new" / "link").unlink(),
    ):
        state = call_of(desk, "space_repo_clean", without=paths).state
        change()
        assert call_of(desk, "space_repo_clean", without=paths).state != state
        assert not desk.workbench.use_approval(call_of(desk, "space_repo_clean", without=paths))
        with refused(ErrorCode.CONFLICT):
            desk.workbench.clean_task(desk.task.id, paths, expected_commit=state)
    assert (desk.root / "new/deep/more").exists()
    monkeypatch.setattr(left_out_paths, "LIMITS", WalkLimits(entries=1))  # more names are no reason not to ask
    state = call_of(desk, "space_repo_clean", without=paths).state
    assert not desk.workbench.clean_task(desk.task.id, paths, expected_commit=state).changes
    assert not (desk.root / "new").exists()


def test_n09_of_many_at_once_exactly_one_uses_an_approval(desk: Desk) -> None:
    call = call_of(desk, message="m")
    approved(desk, call)
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(desk.workbench.use_approval(call))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(won) == [False] * 15 + [True]


def test_n09_an_expired_approval_is_none(desk: Desk) -> None:
    call = call_of(desk, message="m")
    done = approved(desk, call)
    store.save_approval(Home(desk.home), done.model_copy(update={"expires_at": done.created_at}))
    assert not desk.workbench.use_approval(call)
    assert desk.workbench.approval(done.id).state is ApprovalState.EXPIRED
    asked = desk.workbench.request_approval(call)
    store.save_approval(
        Home(desk.home), asked.model_copy(update={"expires_at": asked.created_at - timedelta(seconds=1)})
    )
    with refused(ErrorCode.CONFLICT):
        desk.workbench.answer_approval(asked.id, approved=True, by="a person")


def test_n09_an_approval_under_another_policy_is_none(desk: Desk) -> None:
    approved(desk, call_of(desk, message="m"), ApprovalScope.TASK)
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_commit = "ask"\n')
    with Workbench(desk.home, environ={}) as later:
        assert not later.use_approval(later.approval_call(COMMIT, {"task_id": desk.task.id, "message": "m"}))


@pytest.mark.parametrize("guess", ["apr-" + "a" * 26, "apr-", "", "../tasks/x", "apr-" + "A" * 26, "apr-*", "x" * 5000])
def test_n09_a_guessed_id_is_no_approval(desk: Desk, guess: str) -> None:
    asked = desk.workbench.request_approval(call_of(desk, message="m"))
    for act in _answers(desk, guess):
        with refused(ErrorCode.NOT_FOUND) as found:
            act()
        assert asked.id not in found.value.details + found.value.brief, "nothing near is told"


def _answers(desk: Desk, approval_id: str) -> list[Callable[[], object]]:
    workbench = desk.workbench
    return [
        lambda: workbench.answer_approval(approval_id, approved=True, by="x"),
        lambda: workbench.revoke_approval(approval_id, by="x"),
        lambda: workbench.approval(approval_id),
    ]


def test_a_decision_is_made_once(desk: Desk) -> None:
    """But for a denial, which a person may change (below)."""
    decided = approved(desk, call_of(desk, message="m"))
    for is_approved in (True, False):
        with refused(ErrorCode.CONFLICT) as caught:
            desk.workbench.answer_approval(decided.id, approved=is_approved, by="somebody else")
        assert f"approvals revoke {decided.id}" in caught.value.hint
    denied = desk.workbench.request_approval(call_of(desk, message="n"))
    for _ in range(2):
        with refused(ErrorCode.APPROVAL_DENIED, ErrorCode.CONFLICT) as caught:
            desk.workbench.answer_approval(denied.id, approved=False, by="a person")
            desk.workbench.request_approval(call_of(desk, message="n"))
        assert f"approvals approve {denied.id}" in caught.value.hint


@pytest.mark.parametrize("scope", [ApprovalScope.ONCE, ApprovalScope.TASK])
def test_a_person_may_approve_later_what_was_denied(desk: Desk, scope: ApprovalScope) -> None:
    """Both decisions are in the journal, and one call is approved, once."""
    call = call_of(desk, message="m")
    asked = desk.workbench.request_approval(call)
    desk.workbench.answer_approval(asked.id, approved=False, by="a person")
    later = desk.workbench.answer_approval(asked.id, approved=True, by="another person", scope=scope)
    assert (later.state, later.decided_by) == (ApprovalState.APPROVED, "another person")
    assert (later.expires_at == asked.expires_at) == (scope is ApprovalScope.ONCE)
    assert desk.workbench.use_approval(call)
    assert desk.workbench.use_approval(call) == (scope is ApprovalScope.TASK)
    entries = desk.workbench.log(desk.task.id)
    assert [e.operation for e in entries] == ["create", "ask", "deny", "approve"]
    assert ["a person" in entries[2].names, "another person" in entries[3].names] == [True, True]


def test_n09_a_denial_that_expired_is_not_approved_later(desk: Desk) -> None:
    """The agent asks again then. Control: the test above."""
    call = call_of(desk, message="m")
    asked = desk.workbench.request_approval(call)
    denied = desk.workbench.answer_approval(asked.id, approved=False, by="a person")
    store.save_approval(Home(desk.home), denied.model_copy(update={"expires_at": denied.created_at}))
    with refused(ErrorCode.CONFLICT) as caught:
        desk.workbench.answer_approval(asked.id, approved=True, by="a person")
    assert "asks again if needed" in caught.value.hint
    assert desk.workbench.request_approval(call).id != asked.id


def test_n09_the_client_of_an_agent_approves_nothing_that_a_person_denied(desk: Desk) -> None:
    """Its form may still be open. Control: an open question it may answer."""
    with Workbench(desk.home, environ={}, actor=Actor.AGENT) as agents:
        asked, other = (desk.workbench.request_approval(call_of(desk, message=text)) for text in "mn")
        desk.workbench.answer_approval(asked.id, approved=False, by="a person")
        with refused(ErrorCode.CONFLICT):
            agents.answer_approval(asked.id, approved=True, by="elicitation")
        assert desk.workbench.approval(asked.id).state is ApprovalState.DENIED
        agents.answer_approval(other.id, approved=True, by="elicitation")


def test_a_question_is_put_once(desk: Desk) -> None:
    one, other = (desk.workbench.request_approval(call_of(desk, message="m")) for _ in range(2))
    assert one.id == other.id
    assert [a.id for a in desk.workbench.approvals()] == [one.id]


def test_a_revoked_approval_is_none(desk: Desk) -> None:
    call = call_of(desk, message="m")
    done = approved(desk, call, ApprovalScope.TASK)
    assert desk.workbench.use_approval(call_of(desk, message="anything"))
    desk.workbench.revoke_approval(done.id, by="a person")
    assert not desk.workbench.use_approval(call)


def test_what_is_over_cannot_be_revoked(desk: Desk) -> None:
    asked = desk.workbench.request_approval(call_of(desk, message="m"))
    desk.workbench.answer_approval(asked.id, approved=False, by="a person")
    with refused(ErrorCode.CONFLICT):
        desk.workbench.revoke_approval(asked.id, by="a person")


def test_nobody_is_asked_about_what_would_be_refused(tmp_path: Path) -> None:
    with Workbench(str(tmp_path / "home"), environ={}) as workbench:
        for url in ("/etc", "file:///etc", "ext::sh -c true", "-x", "https://user:word@example.com/a/b"):
            with refused(ErrorCode.INVALID_INPUT):
                workbench.approval_call("space_repo_clone", {"url": url})


def test_an_agent_does_not_learn_without_an_approval_which_paths_there_are(tmp_path: Path) -> None:
    """Where local paths are allowed: a refusal of what does not exist would tell about any path of this host. Control:
    they are allowed.
    """
    (tmp_path / "there").mkdir()
    settings = {"remotes": {"allow_file": True}}
    with Workbench(tmp_path / "home", environ={}, actor=Actor.AGENT, settings=settings) as agents:
        for name in ("there", "not-there"):
            call = agents.approval_call("space_repo_clone", {"url": str(tmp_path / name)})
            assert agents.request_approval(call).state is ApprovalState.PENDING
        with refused(ErrorCode.REMOTE_NOT_FOUND):
            agents.clone(str(tmp_path / "not-there"))


def test_nobody_is_asked_about_a_push_of_nothing_or_through_a_closed_gate(desk: Desk) -> None:
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        desk.workbench.request_approval(call_of(desk, PUSH))
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "m")
    serve_by_github(desk)
    with refused(ErrorCode.GATE_CLOSED):
        desk.workbench.request_approval(call_of(desk, "space_repo_open_pr", title="t", draft=False))
    assert desk.workbench.approvals() == ()
    asked = [call_of(desk, PUSH), call_of(desk, "space_repo_open_pr", title="t", draft=True)]
    assert [desk.workbench.request_approval(call).tool for call in asked] == [PUSH, "space_repo_open_pr"]


def test_nobody_is_asked_about_a_call_that_its_task_or_remote_does_not_allow(desk: Desk) -> None:
    dirty = call_of(desk, CLOSE, delete_worktree=True, discard=False)
    desk.write("f", b"changed\n")
    for refusing in (desk.workbench.request_approval, desk.workbench.take_approval):
        with refused(ErrorCode.DIRTY_WORKSPACE):
            refusing(dirty)
    desk.workbench.commit(desk.task.id, "m")
    with refused(ErrorCode.FORGE_UNSUPPORTED):
        desk.workbench.request_approval(call_of(desk, OPEN_PR, title="t", draft=True))
    with Workbench(str(desk.home), environ={}) as agents:  # its surface may use no local paths
        with refused(ErrorCode.INVALID_INPUT):
            agents.request_approval(call_of(desk, PUSH))
        assert agents.approvals() == ()
    asked = [call_of(desk, PUSH), call_of(desk, CLOSE, delete_worktree=True, discard=False)]
    assert [desk.workbench.request_approval(call).tool for call in asked] == [PUSH, CLOSE]


def test_a_call_that_is_refused_uses_no_approval_up(desk: Desk) -> None:
    call = call_of(desk, CLOSE, delete_worktree=True, discard=False)
    given = approved(desk, call)
    desk.write("f", b"changed\n")
    with refused(ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.take_approval(call)
    assert desk.workbench.take_approval(call_of(desk, CLOSE, delete_worktree=True, discard=True)) is None
    desk.write("f", b"one\ntwo\n")  # the state that was approved
    taken = desk.workbench.take_approval(call)
    assert taken is not None
    assert (taken.id, desk.workbench.take_approval(call)) == (given.id, None)


def test_n11_a_rename_hides_neither_its_old_name_nor_its_risk(desk: Desk) -> None:
    desk.upstream.write(".github/workflows/ci.yml", b"on: push\n" * 20)
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    task = desk.workbench.create_task(desk.repo_id, "move")
    (desk.worktree(task) / ".github/workflows/ci.yml").rename(desk.worktree(task) / "moved.yml")
    desk.workbench.commit(task.id, "m")
    question = desk.workbench.request_approval(call_of(desk, PUSH, task)).question
    assert any(".github/workflows/ci.yml -> moved.yml" in line for line in question)
    assert any("RISK: .github/workflows/ci.yml (ci" in line for line in question)


@pytest.mark.parametrize(
    "hidden",
    [
        "Fix\x9d\n\nApproved-by: ceo\x9c",
        "a\x1b]\nimport os\n#\x07 end",
        "x\x1b[8mhidden",
        "a\u202eb",
        "a\u115fb",
        "a\ufe0fb",
    ],
)
def test_n11_nothing_of_an_argument_is_left_out_of_the_question(desk: Desk, hidden: str) -> None:
    """Control: what is shown of a guest's text leaves some of it out, or as it cannot be seen."""
    unseen = {c for c in hidden if c != "\n" and not (c.isascii() and c.isprintable())}
    assert unseen, "void"
    text = "\n".join(desk.workbench.request_approval(call_of(desk, message=hidden)).question)
    assert all(f"\\u{{{ord(c):x}}}" in text for c in unseen)
    assert not unseen & set(text)
    assert all(word in text for word in ("Approved-by: ceo", "import os", "hidden") if word in hidden)


def test_n11_letters_that_may_be_others_are_told(desk: Desk) -> None:
    call = desk.workbench.approval_call("space_repo_clone", {"url": "https://githu\u042c.invalid/a/b"})
    assert "not all ASCII" in "\n".join(desk.workbench.request_approval(call).question)


def test_scopes(desk: Desk) -> None:
    other = desk.workbench.create_task(desk.repo_id, "other")
    approved(desk, call_of(desk, message="m"), ApprovalScope.TASK)
    assert all(desk.workbench.use_approval(call_of(desk, message=text)) for text in "abc")
    assert not desk.workbench.use_approval(call_of(desk, task=other, message="a"))
    approved(desk, call_of(desk, message="n"), ApprovalScope.REPOSITORY)
    assert desk.workbench.use_approval(call_of(desk, task=other, message="a"))


@pytest.mark.parametrize("scope", [ApprovalScope.TASK, ApprovalScope.REPOSITORY])
def test_a_call_that_is_always_asked_about_is_approved_once_only(desk: Desk, scope: ApprovalScope) -> None:
    """Such an approval would cover no call. Control: once, and a call of the same tool that is not always asked."""
    write_profile(desk, "loose", lint="true")
    with open_again(desk) as workbench:
        kept = workbench.create_task(desk.repo_id, "p", options=TaskOptions(profile="loose"))
        call = workbench.approval_call("space_repo_fork_task", {"task_id": kept.id})
        asked = workbench.request_approval(call)
        with refused(ErrorCode.INVALID_INPUT) as caught:
            workbench.answer_approval(asked.id, approved=True, by="a person", scope=scope)
        assert asked.id in caught.value.hint
        assert workbench.approval(asked.id).state is ApprovalState.PENDING
        workbench.answer_approval(asked.id, approved=True, by="a person")
        assert workbench.use_approval(call)
        usual = workbench.request_approval(workbench.approval_call("space_repo_fork_task", {"task_id": desk.task.id}))
        assert workbench.answer_approval(usual.id, approved=True, by="a person", scope=scope).scope is scope


def write_profile(desk: Desk, name: str, **checks: str) -> None:
    tables = [f'[[check]]\nid = "{check}"\nlabel = "x"\nargv = ["{command}"]\n' for check, command in checks.items()]
    (desk.home / "profiles").mkdir(exist_ok=True)
    (desk.home / f"profiles/{name}.toml").write_text("\n".join([f'label = "{name}"\nimage = "generic"', *tables]))


def open_again(desk: Desk) -> Workbench:
    """A controller that reads the profiles as they are now."""
    return Workbench(desk.home, environ={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}, allow_file=True)


def test_n09_a_person_is_asked_about_each_choice_of_a_profile_and_told_what_it_leaves_out(desk: Desk) -> None:
    """Control: an approval of the tool for the repository covers a task with the repository's profile."""
    write_profile(desk, "strict", test="pytest", lint="ruff", build="make")
    write_profile(desk, "loose", lint="true", build="make")
    with open_again(desk) as workbench:
        workbench.set_repository(desk.repo_id, {"profile": "strict"})
        plain = {"repo_id": desk.repo_id, "prompt": "p", "profile": None}
        chosen = workbench.approval_call(CREATE, {**plain, "profile": "loose"})
        asked = workbench.request_approval(chosen)
        assert asked.question[-10:] == (
            f"profile: loose instead of strict, as of commit {desk.task.base_commit[:12]} of the default branch",
            "before a push or pull request of this task the gate asks for the checks of this profile only",
            "leaves out: 1 of 3 check(s) of strict",
            "  test: pytest",
            "runs another check of the same name: 1",
            "  lint: ruff",
            "  now lint: true",
            "has: 2 check(s)",
            "  lint: true",
            "  build: make",
        )
        usual = workbench.request_approval(workbench.approval_call(CREATE, plain))
        workbench.answer_approval(usual.id, approved=True, by="a person", scope=ApprovalScope.REPOSITORY)
        assert not workbench.use_approval(chosen)
        assert workbench.use_approval(workbench.approval_call(CREATE, plain))
        once = workbench.request_approval(chosen)
        workbench.answer_approval(once.id, approved=True, by="a person")
    write_profile(desk, "strict", test="pytest", lint="ruff", build="make", audit="check")
    with open_again(desk) as workbench:
        assert not workbench.use_approval(workbench.approval_call(CREATE, {**plain, "profile": "loose"}))
    write_profile(desk, "strict", test="pytest", lint="ruff", build="make")
    with open_again(desk) as workbench:
        assert workbench.use_approval(workbench.approval_call(CREATE, {**plain, "profile": "loose"}))
        task = workbench.create_task(desk.repo_id, options=TaskOptions(profile="loose", branch="words"))
        later = workbench.request_approval(workbench.approval_call(COMMIT, {"task_id": task.id, "message": "m"}))
        assert "profile: loose, chosen for this task" in later.question
        assert task.branch.endswith("-words")
        for wrong, code in (({"profile": "lose"}, ErrorCode.NOT_FOUND), ({"branch": "A b"}, ErrorCode.INVALID_INPUT)):
            with refused(code):
                workbench.request_approval(workbench.approval_call(CREATE, {**plain, **wrong}))


def test_n09_an_approved_profile_is_bound_to_all_that_it_says(desk: Desk) -> None:
    """Control: the same profiles, read again, are the same approval."""
    write_profile(desk, "strict", test="pytest")
    loose = desk.home / "profiles" / "loose.toml"

    def change(text: str) -> AgentCall:
        write_profile(desk, "loose", test="pytest")
        loose.write_text(
            loose.read_text().replace('image = "generic"', text) if text[0] == "i" else loose.read_text() + text
        )
        with open_again(desk) as workbench:
            return workbench.approval_call(CREATE, wanted)

    wanted = {"repo_id": desk.repo_id, "prompt": "p", "profile": "loose"}
    desk.workbench.set_repository(desk.repo_id, {"profile": "generic"})
    with open_again(desk) as workbench:
        workbench.set_repository(desk.repo_id, {"profile": "strict"})
    changes = ("timeout_s = 1\n", '[check.env]\nA = "1"\n', 'cwd = "d"\n', 'image = "base"')
    found = [change(text) for text in ("# as it was\n", *changes, "# again\n")]
    assert found[0].state == found[-1].state
    assert len({call.state for call in found}) == len(changes) + 1
    asked = []
    for text in changes:
        call = change(text)
        with open_again(desk) as workbench:
            asked.append(workbench.request_approval(call).question)
    for question, line in zip(asked, ("timeout_s", "env", "cwd"), strict=False):
        assert f"  also differs in: {line}" in question
    assert "its checks run with another: image" in asked[-1]


def test_n09_the_question_about_a_profile_is_about_the_commit_at_which_the_task_begins(desk: Desk) -> None:
    """A ref that was not fetched yet is described as the default branch, and the question says so."""
    write_profile(desk, "loose", test="true")
    desk.upstream.git("checkout", "-q", "-b", "other")
    desk.upstream.write("f", b"of the other branch\n")
    there = desk.upstream.commit()
    desk.upstream.git("checkout", "-q", "main")
    wanted = {"repo_id": desk.repo_id, "prompt": "p", "profile": "loose", "ref": "other"}
    with open_again(desk) as workbench:
        before = workbench.approval_call(CREATE, wanted)
        early = "\n".join(workbench.request_approval(before).question)
        assert f"commit {desk.task.base_commit[:12]} of the default branch: what it begins at was not fetched" in early
        workbench.clone(str(desk.upstream.root))
        after = workbench.approval_call(CREATE, wanted)
        assert f"as of commit {there[:12]}" in "\n".join(workbench.request_approval(after).question)
        assert before.state != after.state


def test_n09_what_a_new_task_fetches_changes_no_approved_choice(desk: Desk) -> None:
    """The repository's own profile asks for another check by now, which the question did not say is left out. Control:
    a new commit alone is no other choice; and nothing is left of the task that was refused.
    """
    write_profile(desk, "loose", lint="true")
    write_profile(desk, "strict", test="pytest")
    strict = desk.home / "profiles" / "strict.toml"
    strict.write_text(strict.read_text() + '\n[detect]\nall = [{ file = "strict.lock" }]\n')
    wanted = {"repo_id": desk.repo_id, "prompt": "p", "profile": "loose", "ref": None}

    def create(state: str) -> Task:
        options = TaskOptions(profile="loose", expected_choice=state)
        return workbench.create_task(desk.repo_id, "p", options=options, fetch=True)

    with open_again(desk) as workbench:
        state = workbench.approval_call(CREATE, wanted).state
        desk.upstream.write("f", b"more\n")
        there = desk.upstream.commit()
        made = create(state)
        assert made.base_commit == there
        state = workbench.approval_call(CREATE, wanted).state
        desk.upstream.write("strict.lock", b"")
        desk.upstream.commit()
        before = (workbench.tasks(), desk.refs())
        with refused(ErrorCode.CONFLICT) as caught:
            create(state)
        assert "changes other checks than those that were approved" in caught.value.brief
        left = [task for task in workbench.tasks() if task not in before[0]]
        assert [task.status for task in left] == [TaskStatus.CLOSED]
        assert not [ref for ref in desk.refs() if ref not in before[1] and left[0].id[5:13] in ref]
        again = workbench.approval_call(CREATE, wanted)
        assert "leaves out: 1 of 1 check(s) of strict" in workbench.request_approval(again).question
        create(again.state)


def test_an_approved_choice_also_holds_for_a_task_that_continues_from_a_snapshot(desk: Desk) -> None:
    write_profile(desk, "loose", lint="true")
    kept = desk.workbench.snapshot(desk.task.id)
    with open_again(desk) as workbench:
        before = workbench.tasks()
        options = TaskOptions(profile="loose", expected_choice="0" * 64)
        with refused(ErrorCode.CONFLICT):
            workbench.create_task(desk.repo_id, "p", from_snapshot=kept.id, options=options)
        assert [t.status for t in workbench.tasks() if t not in before] == [TaskStatus.CLOSED]


def test_a_call_about_no_task_is_approved_once_only(desk: Desk) -> None:
    call = desk.workbench.approval_call("space_repo_clone", {"url": "https://example.com/a/b"})
    asked = desk.workbench.request_approval(call)
    for scope in (ApprovalScope.TASK, ApprovalScope.REPOSITORY):
        with refused(ErrorCode.INVALID_INPUT):
            desk.workbench.answer_approval(asked.id, approved=True, by="a person", scope=scope)


# --- what the person sees, and what is kept


def test_n11_the_question_shows_remote_branch_files_and_risks(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    desk.write("Makefile", b"all:\n")
    desk.write(".github/workflows/ci.yml", b"on: push\n")
    desk.write("evil\x1b[2Jname", b"x")
    desk.workbench.commit(desk.task.id, "m")
    text = "\n".join(desk.workbench.request_approval(call_of(desk, PUSH)).question)
    assert str(desk.upstream.root) in text
    assert desk.task.branch in text
    assert "sends: 4 file(s)" in text
    assert "RISK: .github/workflows/ci.yml (ci" in text
    assert "\x1b" not in text


def test_the_question_about_a_pull_request_says_into_which_branch(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "m")
    serve_by_github(desk)
    asked = [desk.workbench.request_approval(call_of(desk, tool)).question for tool in (OPEN_PR, PUSH)]
    assert [f"pull request: into {desk.task.base_branch}" in question for question in asked] == [True, False]


def test_n11_the_question_about_a_clean_tells_what_is_lost_also_of_a_task_too_large_to_look_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: another tool cannot be asked about there. What is approved loses what was named, and no more."""
    monkeypatch.setattr(changes, "CHANGED_BYTES", 10_000)
    desk.write("core", bytes(20_000))
    desk.write("f", b"mine\n")
    with refused(ErrorCode.QUOTA_EXCEEDED):
        call_of(desk, COMMIT, message="m")
    call = call_of(desk, "space_repo_clean", without=["core"])
    text = "\n".join(approved(desk, call).question)
    assert all(told in text for told in ("deletes permanently", "git ignores", 'without: ["core"]', "keeps: other"))
    assert not desk.workbench.use_approval(call_of(desk, "space_repo_clean", without=["f2"]))
    assert desk.workbench.use_approval(call)
    desk.workbench.clean_task(desk.task.id, ["core"])
    assert (desk.root / "f").read_bytes() == b"mine\n"
    assert not (desk.root / "core").exists()


def test_o10_what_a_later_commit_took_back_is_sent_too_and_told(desk: Desk) -> None:
    """Control: the files that the push ends with are those of the first commit alone."""
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "keep")
    once = desk.workbench.request_approval(call_of(desk, PUSH)).question
    assert not any("earlier commit" in line for line in once)
    for content in (b"on: push\n", None):
        for name in (".github/workflows/ci.yml", "secret\x1b[2J"):
            path = desk.write(name, content or b"")
            path.unlink() if content is None else None
        desk.workbench.commit(desk.task.id, "there and back")
    question = desk.workbench.request_approval(call_of(desk, PUSH)).question
    assert [line for line in question if line.startswith("sends: ")] == ["sends: 1 file(s)"]
    told = list(question[question.index("in earlier commits only: 2 file(s)") :])
    assert told[1].strip() == ".github/workflows/ci.yml"
    assert told[2].strip().startswith("secret")
    assert any(line.startswith("RISK: .github/workflows/ci.yml in an earlier commit (ci") for line in told)
    assert "\x1b" not in "".join(told)


def test_n11_no_name_and_no_argument_begins_a_line_of_its_own(desk: Desk) -> None:
    lie = "x\nverified: yes, every check passed"
    desk.write(lie, b"x")
    desk.workbench.commit(desk.task.id, lie)
    question = desk.workbench.request_approval(call_of(desk, PUSH, message=lie)).question
    assert [line for line in "\n".join(question).splitlines() if line.strip().startswith("verified: yes")] == []
    assert any("x\\u{a}verified" in line for line in question), "void: the name is not shown"


def test_n11_a_question_too_long_to_read_cannot_be_put(desk: Desk) -> None:
    for n in range(2001):
        desk.write(f"many/{n}", b"x")
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.workbench.request_approval(call_of(desk, message="m"))


def test_decisions_are_journaled_with_who(desk: Desk) -> None:
    approved(desk, call_of(desk, message="m"))
    entries = desk.workbench.log(desk.task.id)
    assert [e.operation for e in entries] == ["create", "ask", "approve"]
    assert "a person" in entries[-1].names


def clone_question(desk: Desk, number: int, tool: str = "space_repo_clone") -> AgentCall:
    return desk.workbench.approval_call(tool, {"url": f"https://h/{number}"})


def test_an_agent_that_loops_blocks_no_other_questions(desk: Desk) -> None:
    for n in range(MOST_PER_SUBJECT):
        desk.workbench.request_approval(clone_question(desk, n))
    with refused(ErrorCode.QUOTA_EXCEEDED) as found:
        desk.workbench.request_approval(clone_question(desk, 1000))
    assert "deny --all" in found.value.hint
    assert desk.workbench.request_approval(clone_question(desk, 0)), "what was asked is not asked anew"
    assert desk.workbench.request_approval(clone_question(desk, 1000, "space_repo_fetch"))
    other = desk.workbench.create_task(desk.repo_id, "other")
    for task in (desk.task, other):
        for n in range(MOST_PER_SUBJECT):
            desk.workbench.request_approval(call_of(desk, task=task, message=f"{n}"))
        with refused(ErrorCode.QUOTA_EXCEEDED):
            desk.workbench.request_approval(call_of(desk, task=task, message="one more"))


def test_an_agent_that_makes_tasks_blocks_no_other_repositorys_questions(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_PER_REPOSITORY", 3)
    for n in range(3):
        desk.workbench.request_approval(call_of(desk, task=desk.workbench.create_task(desk.repo_id, f"{n}")))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.workbench.request_approval(call_of(desk))
    assert desk.workbench.request_approval(clone_question(desk, 0)), "about another, or none"


def test_a_used_approval_is_found_for_exactly_its_call_and_since_it_was_used(desk: Desk) -> None:
    """Also when it is filed away, as the next question does."""
    before, call, other = datetime.now(UTC), call_of(desk, message="m"), call_of(desk, message="other")
    done = approved(desk, call)
    assert desk.workbench.find_used_approval(call, before) is None, "it was not used"
    assert desk.workbench.take_approval(call)
    desk.workbench.request_approval(other)
    found = desk.workbench.find_used_approval(call, before)
    assert found is not None
    assert found.id == done.id
    assert desk.workbench.find_used_approval(other, before) is None
    assert desk.workbench.find_used_approval(call, datetime.now(UTC)) is None


def test_questions_in_all_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.workbench.approvals.requests.MOST_PENDING", 3)
    for tool in ("one", "two", "three"):
        desk.workbench.request_approval(clone_question(desk, 0, tool))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        desk.workbench.request_approval(clone_question(desk, 0, "four"))


def test_all_questions_are_denied_at_once_and_may_be_of_one_tool(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "m")
    kept = approved(desk, call_of(desk, message="in force"))
    push = desk.workbench.request_approval(call_of(desk, PUSH))
    for n in range(3):
        desk.workbench.request_approval(clone_question(desk, n))
    assert len(desk.workbench.deny_approvals(by="a person", tool="space_repo_clone")) == 3
    assert [a.id for a in desk.workbench.approvals()] == [kept.id, push.id]
    with refused(ErrorCode.APPROVAL_DENIED):
        desk.workbench.request_approval(clone_question(desk, 0))
    assert [a.id for a in desk.workbench.deny_approvals(by="a person")] == [push.id]
    assert [a.id for a in desk.workbench.revoke_approvals(by="a person")] == [kept.id]
    assert desk.workbench.approvals() == ()
    assert [e.operation for e in desk.workbench.log(desk.task.id)] == [
        "create", "commit", "ask", "approve", "ask", "deny", "revoke",
    ]  # fmt: skip
    for end in (desk.workbench.deny_approvals, desk.workbench.revoke_approvals):
        with refused(ErrorCode.NOT_FOUND) as found:
            end(by="a person", tool="space_repo_pusch")
        assert "space_repo_push" in found.value.details


def test_a_question_that_somebody_removed_meanwhile_is_left_out(desk: Desk) -> None:
    first, second = (desk.workbench.request_approval(clone_question(desk, n)) for n in range(2))

    def end(approval_id: str) -> Approval:
        Home(desk.home).approval(second.id).unlink(missing_ok=True)
        return desk.workbench.answer_approval(approval_id, approved=False, by="a person")

    services = build_services(desk.home, {}, allow_file=True)
    assert [a.id for a in requests.end_all(services.home, {ApprovalState.PENDING}, None, end)] == [first.id]
    services.close()


def test_what_was_taken_back_is_in_the_journal(desk: Desk) -> None:
    done = approved(desk, call_of(desk, message="m"))
    desk.workbench.revoke_approval(done.id, by="a person")
    assert {done.id, "revoked", "a person"} <= set(desk.workbench.log(desk.task.id)[-1].names)


@pytest.mark.parametrize("how", ["torn", "deep", "folder", "link", "no zone", "other name"])
def test_a_damaged_record_is_skipped(desk: Desk, how: str) -> None:
    done = approved(desk, call_of(desk, message="m"))
    path = Home(desk.home).approval(done.id)
    text = path.read_text()
    path.unlink()
    match how:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("/etc/passwd")
        case _:
            texts = {"torn": "{", "deep": "[" * 100_000, "no zone": text.replace("Z", "")}
            path.write_text(texts.get(how, text.replace(done.id, f"apr-{'a' * 26}")))
    assert desk.workbench.approvals(everything=True) == ()
    assert not desk.workbench.use_approval(call_of(desk, message="m"))
    assert desk.workbench.request_approval(call_of(desk, message="m")).state is ApprovalState.PENDING


def test_what_is_no_record_among_the_old_ones_ends_no_question(desk: Desk) -> None:
    folder = Home(desk.home).old_approvals / "mine"
    folder.mkdir()
    os.utime(folder, (1, 1))
    assert desk.workbench.request_approval(call_of(desk, message="m")).state is ApprovalState.PENDING
    assert folder.is_dir()


def test_only_what_is_over_for_a_month_is_forgotten(desk: Desk) -> None:
    done = approved(desk, call_of(desk, message="m"))
    home, now = Home(desk.home), datetime.now(UTC)
    store.delete_old(home, now + timedelta(days=1000))
    assert store.find_approval(home, done.id) is not None, "it is in force"
    assert desk.workbench.use_approval(call_of(desk, message="m"))
    assert not desk.workbench.use_approval(call_of(desk, message="m"))
    os.utime(home.old_approval(done.id), ((now - timedelta(days=31)).timestamp(),) * 2)
    for days, is_kept in ((0, True), (32, True), (30, False)):
        settings = {"keep": {"approvals_days": days}}
        with Workbench(desk.home, environ={}, allow_file=True, settings=settings) as bench:
            bench.request_approval(call_of(desk, message=f"after {days} days"))
        assert (store.find_approval(home, done.id) is not None) is is_kept


def test_what_is_over_is_not_read_again_by_the_next_calls(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    call, home = call_of(desk, message="m"), Home(desk.home)
    for n in range(30):  # as a home of before has them, or a controller that was killed
        done = approved(desk, call_of(desk, message=f"{n}"))
        store.save_approval(home, done.model_copy(update={"state": ApprovalState.USED}))
    open_one = desk.workbench.request_approval(clone_question(desk, 1))
    assert not desk.workbench.use_approval(call)
    read: list[Path] = []
    load = store._load

    def noted(path: Path) -> Approval | None:
        read.append(path)
        return load(path)

    monkeypatch.setattr(store, "_load", noted)
    assert not desk.workbench.use_approval(call)
    assert read == [home.approval(open_one.id)]
    assert len(desk.workbench.approvals(everything=True)) == 31, "the control"


def test_an_approval_is_found_while_it_is_filed_away(desk: Desk) -> None:
    """Nobody who looks without the lock misses it, or sees it twice."""
    done = approved(desk, call_of(desk, message="m"))
    home = Home(desk.home)
    copy = home.approval(done.id).read_bytes()
    home.old_approval(done.id).write_bytes(copy)
    assert [a.id for a in desk.workbench.approvals(everything=True)] == [done.id]
    home.approval(done.id).unlink()
    assert desk.workbench.approval(done.id) == done
    assert not desk.workbench.use_approval(call_of(desk, message="m")), "what is filed away is over, whatever it says"


# --- time


READ = "space_repo_read_file"


def test_an_expired_question_is_marked_and_becomes_an_event_once(desk: Desk) -> None:
    asked, held = desk.workbench.request_approval(call_of(desk)), approved(desk, call_of(desk, READ))
    assert desk.workbench.expire_approvals() == ()
    home, ago = Home(desk.home), datetime.now(UTC) - timedelta(seconds=1)
    for one in (asked, held):
        store.save_approval(home, desk.workbench.approval(one.id).model_copy(update={"expires_at": ago}))
    assert [one.id for one in desk.workbench.expire_approvals()] == [asked.id, held.id]
    assert desk.workbench.expire_approvals() == ()
    stored = [store.find_approval(home, one.id) for one in (asked, held)]
    assert [one.state for one in stored if one] == [ApprovalState.EXPIRED] * 2
    expired = [event for event in desk.workbench.events() if event.operation.operation == "expire"]
    assert [(event.kind.value, event.operation.names[:2]) for event in expired] == [
        ("approval", (COMMIT, "was pending")),
        ("approval", (READ, "was approved")),
    ]
    assert desk.workbench.approvals() == ()


def test_a_denial_holds_until_its_end_and_is_not_announced(desk: Desk) -> None:
    asked = desk.workbench.request_approval(call_of(desk))
    desk.workbench.answer_approval(asked.id, approved=False, by="a person")
    ago = datetime.now(UTC) - timedelta(seconds=1)
    found = desk.workbench.approval(asked.id)
    store.save_approval(Home(desk.home), found.model_copy(update={"expires_at": ago}))
    assert desk.workbench.expire_approvals() == ()


def test_an_approval_that_was_used_in_between_does_not_expire(desk: Desk) -> None:
    held = approved(desk, call_of(desk))
    assert desk.workbench.use_approval(call_of(desk))
    with refused(ErrorCode.CONFLICT):
        requests.expire(Home(desk.home), held.id)
