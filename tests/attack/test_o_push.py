"""THREATS O: a push reaches the task's own branch, as it was when we last pushed it, or nothing at all."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import classify
from sandbox.git.push.reasons import PushReason, PushRejected
from tests.attack.arena import Arena, refused
from tests.attack.httpstub import Stub, serving
from tests.attack.test_f_credentials import store

pytestmark = pytest.mark.must
DELIVERY = importlib.import_module("sandbox.workbench.delivery.push")  # not the name that loads it at first use


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def stub(arena: Arena, authority: trustme.CA) -> Iterator[Stub]:
    """The remote behind https, with its hooks; the task is of that remote."""
    authority.cert_pem.write_to_path(str(arena.root / "ca.pem"))
    with serving(Stub(arena.remote.parent, down=arena.root / "down"), authority) as server:
        store(arena, f"127.0.0.1:{server.port}")
        arena.workbench.__exit__(None, None, None)
        (arena.home / "config.toml").write_text('[remotes]\nplain_hosts = ["127.0.0.1"]\n')
        arena.workbench = arena.open_workbench()
        arena.repo_id = arena.workbench.clone(f"https://127.0.0.1:{server.port}/remote.git").repository.id
        arena.task = arena.workbench.create_task(arena.repo_id)
        arena.worktree = arena.home / "repositories" / "worktrees" / arena.repo_id / arena.task.id
        yield server


def commit(arena: Arena, text: str = "mine\n") -> str:
    (arena.worktree / "f.txt").write_text(text)
    return arena.workbench.commit(arena.task.id, "x").commit


def there(arena: Arena, branch: str | None = None) -> str | None:
    """The commit of a branch in the remote's own repository."""
    ref = f"refs/heads/{branch or arena.task.branch}"
    found = arena.git("rev-parse", "--verify", "--quiet", ref, cwd=arena.root, git_dir=arena.remote)
    return found.text if found.code == 0 else None


def set_there(arena: Arena, oid: str, branch: str | None = None) -> None:
    arena.require_git(
        "update-ref", f"refs/heads/{branch or arena.task.branch}", oid, cwd=arena.root, git_dir=arena.remote
    )


def hook(arena: Arena, name: str, script: str) -> Path:
    path = arena.remote / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def reason(caught: list[SandboxError]) -> PushReason:
    assert isinstance(caught[0], PushRejected)
    return caught[0].reason


def tampered(arena: Arena, **fields: object) -> None:
    """Somebody edits the task's record."""
    path = arena.home / "repositories" / "tasks" / f"{arena.task.id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


# --- O07: nobody's commits are overwritten


def test_o07_a_branch_that_somebody_else_made_stays(arena: Arena) -> None:
    """Control: a forced push of plain git overwrites it."""
    ours, main = commit(arena), str(there(arena, "main"))
    set_there(arena, main)
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        arena.workbench.push(arena.task.id)
    assert (reason(caught), there(arena)) == (PushReason.BRANCH_EXISTS, main)
    assert f"expected no such branch, found {main}" in caught[0].details
    assert f"sandbox task fork {arena.task.id}`" in caught[0].hint
    spec = f"{ours}:refs/heads/{arena.task.branch}"
    arena.require_git("push", "-q", "-f", str(arena.remote), spec, cwd=arena.root, git_dir=arena.cache)
    assert there(arena) == ours, "void"


def test_o07_commits_made_on_it_since_our_push_stay_and_both_are_named(arena: Arena) -> None:
    """Control: where nobody made any, the same steps move the branch."""
    first, main = commit(arena), str(there(arena, "main"))
    assert arena.workbench.push(arena.task.id).forced is False
    commit(arena, "more\n")
    set_there(arena, main)
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        arena.workbench.push(arena.task.id)
    assert (reason(caught), there(arena)) == (PushReason.BRANCH_MOVED, main)
    assert f"expected {first}, found {main}" in caught[0].details
    set_there(arena, first)
    assert arena.workbench.push(arena.task.id).commit == there(arena)


def test_o07_a_branch_deleted_since_our_push_is_not_made_again(arena: Arena) -> None:
    """Control: a fork of the task takes the same commit to a branch of its own."""
    commit(arena)
    arena.workbench.push(arena.task.id)
    later = commit(arena, "more\n")
    ref = f"refs/heads/{arena.task.branch}"
    arena.require_git("update-ref", "-d", ref, cwd=arena.root, git_dir=arena.remote)
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        arena.workbench.push(arena.task.id)
    assert (reason(caught), there(arena)) == (PushReason.BRANCH_DELETED, None)
    fork = arena.workbench.fork_task(arena.task.id)
    assert arena.workbench.push(fork.id).commit == later == there(arena, fork.branch)


# --- O08: never the default branch, nor any that is not the task's own


FORGED: dict[str, Callable[[Arena], dict[str, str]]] = {
    "default": lambda arena: {"branch": "main"},
    "foreign": lambda arena: {"branch": "release"},
    "other-task": lambda arena: {"branch": arena.workbench.create_task(arena.repo_id).branch},
    "no-slug": lambda arena: {"branch": f"space-agent/{arena.task.id}"},
    "no-short-slug": lambda arena: {"branch": f"space-agent/{arena.task.id[5:13]}"},
    "no-prefix": lambda arena: {"branch": f"space-agent/{arena.task.id[5:12]}-work"},
    "short-of-other": lambda arena: {"branch": f"space-agent/{arena.workbench.create_task(arena.repo_id).id[5:13]}-x"},
    "below": lambda arena: {"branch": f"{arena.task.branch}/../../main"},
    "refspec": lambda arena: {"branch": f"{arena.task.branch}:refs/heads/main"},
    "full-name": lambda arena: {"branch": f"refs/heads/{arena.task.branch}"},
    "line": lambda arena: {"branch": f"{arena.task.branch}\n"},
    "base": lambda arena: {"base_branch": arena.task.branch},
    "full-base": lambda arena: {"base_branch": f"refs/heads/{arena.task.branch}"},
    "id": lambda arena: {"id": arena.workbench.create_task(arena.repo_id).id},
}


@pytest.mark.one_git
def test_o08_a_forged_record_reaches_no_other_branch_and_no_server(arena: Arena, stub: Stub) -> None:
    """Control: the record as it was is asked about, and pushed."""
    ours = commit(arena)
    forged = {name: make(arena) for name, make in FORGED.items()}
    before, asked = arena.require_git("for-each-ref", cwd=arena.root, git_dir=arena.remote), len(stub.seen)
    genuine = arena.workbench.task(arena.task.id).model_dump(mode="json")
    for fields in forged.values():
        tampered(arena, **fields)
        with refused(ErrorCode.POLICY_VIOLATION):
            arena.workbench.push(arena.task.id)
        tampered(arena, **genuine)
    assert (arena.require_git("for-each-ref", cwd=arena.root, git_dir=arena.remote), len(stub.seen)) == (before, asked)
    assert arena.workbench.push(arena.task.id).commit == ours == there(arena)
    assert len(stub.seen) > asked


def test_o08_without_the_rule_a_forged_record_would_move_the_default_branch(
    arena: Arena, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease, which asks for a branch of our last push, is the second wall: here it has fallen too."""
    ours, main = commit(arena), str(there(arena, "main"))
    pushed = f"refs/sandbox/{arena.task.id}/pushed"
    clone = arena.home / "repositories" / "clones" / arena.repo_id
    arena.require_git("update-ref", pushed, main, cwd=arena.root, git_dir=clone)
    tampered(arena, branch="main")
    with refused(ErrorCode.POLICY_VIOLATION):
        arena.workbench.push(arena.task.id)
    assert there(arena, "main") == main
    monkeypatch.setattr(DELIVERY, "require_own_branch", lambda *_: None)
    arena.workbench.push(arena.task.id)
    assert there(arena, "main") == ours


@pytest.mark.one_git
def test_o08_our_branch_is_not_pushed_to_once_the_remote_calls_it_its_default(arena: Arena) -> None:
    commit(arena)
    arena.workbench.push(arena.task.id)
    commit(arena, "more\n")
    ref = f"refs/heads/{arena.task.branch}"
    arena.require_git("symbolic-ref", "HEAD", ref, cwd=arena.root, git_dir=arena.remote)
    arena.workbench.clone(str(arena.remote))
    with refused(ErrorCode.POLICY_VIOLATION):
        arena.workbench.push(arena.task.id)


# --- what the server says, and what it does


@pytest.mark.parametrize(
    "then", ["git update-ref refs/heads/{branch} refs/heads/main", "git update-ref -d refs/heads/{branch}"]
)
def test_o07_a_server_that_accepts_and_keeps_something_else_is_a_conflict(arena: Arena, stub: Stub, then: str) -> None:
    """Control: without its hook the same push succeeds."""
    ours = commit(arena)
    path = hook(arena, "post-receive", then.format(branch=arena.task.branch))
    with refused(ErrorCode.CONFLICT) as caught:
        arena.workbench.push(arena.task.id)
    assert ours in caught[0].details
    assert str(there(arena) or "no such branch") in caught[0].details
    path.unlink()
    arena.git("update-ref", "-d", f"refs/heads/{arena.task.branch}", cwd=arena.root, git_dir=arena.remote)
    assert arena.workbench.push(arena.task.id).commit == ours == there(arena)


@pytest.mark.usefixtures("unhurried")
def test_o06_a_push_that_nobody_can_confirm_says_so_and_is_not_sent_twice(arena: Arena, stub: Stub) -> None:
    ours = commit(arena)
    path = hook(arena, "post-receive", f": > '{stub.down}'")
    with refused(ErrorCode.NETWORK_ERROR) as caught:
        arena.workbench.push(arena.task.id)
    assert "could not be verified" in caught[0].brief
    assert (there(arena), stub.pushes()) == (ours, 1)
    assert arena.workbench.task(arena.task.id).pushed_at is None
    assert stub.down is not None
    stub.down.unlink()
    path.unlink()
    assert arena.workbench.push(arena.task.id).commit == ours
    assert stub.pushes() == 1  # the remote was asked, and had it already
    later = commit(arena, "more\n")
    assert arena.workbench.push(arena.task.id).forced is False
    assert (there(arena), stub.pushes()) == (later, 2)


def test_o06_a_push_whose_answer_is_lost_is_found_out_by_the_next(arena: Arena, stub: Stub) -> None:
    """Control: with an answer the first push has no error."""
    ours = commit(arena)
    stub.hangs_up = 9
    with refused(ErrorCode.NETWORK_ERROR) as caught:
        arena.workbench.push(arena.task.id)
    assert "may have arrived" in caught[0].hint
    assert (there(arena), arena.workbench.task(arena.task.id).pushed_at) == (ours, None)
    stub.hangs_up = 0
    later = commit(arena, "more\n")  # not what is there, and not what we knew to be there
    assert arena.workbench.push(arena.task.id).forced is False
    assert there(arena) == later


def test_o06_a_push_that_curl_repeats_after_a_lost_answer_has_arrived(arena: Arena, stub: Stub) -> None:
    """The second request is refused: the branch is no longer where the first one found it."""
    ours = commit(arena)
    stub.hangs_up = 1
    assert arena.workbench.push(arena.task.id).commit == ours == there(arena)
    assert stub.pushes() == 2, "void: the request was not repeated"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)


@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_o_a_hook_cannot_have_the_users_credential_asked_for(arena: Arena, stub: Stub, name: str) -> None:
    """Control: a server that really refuses has the user's helper asked."""
    helper = arena.script("helper")
    (arena.operator / ".gitconfig").write_text(f'[credential]\n\thelper = "!{helper}"\n')
    (arena.home / "credentials.toml").unlink()
    stub.asks = False
    arena.workbench.__exit__(None, None, None)
    arena.workbench = arena.open_workbench()
    _trusting(arena)
    commit(arena)
    path = hook(arena, name, "echo 'fatal: Authentication failed for https://h/: 403' >&2; exit 1")
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        arena.workbench.push(arena.task.id)
    assert (reason(caught), arena.marks()) == (PushReason.HOOK_DECLINED, set())
    assert classify("push", 1, caught[0].details).code is ErrorCode.AUTH_FAILED, "void: its words fool nobody"
    path.unlink()
    stub.asks = True
    with refused(ErrorCode.AUTH_FAILED):
        arena.workbench.push(arena.task.id)
    assert arena.marks() == {"helper"}


def _trusting(arena: Arena) -> None:
    """The stub's certificate, and no secret."""
    path = arena.home / "credentials.toml"
    path.touch(mode=0o600)
    path.write_text(f'[[credential]]\nhost = "*"\nca_file = "{arena.root}/ca.pem"\n')


LIMITS = {
    "size": ("receive.maxInputSize", "200", PushReason.TOO_LARGE),
    "proxy": ("", "", PushReason.TOO_LARGE),
    "hidden": ("receive.hideRefs", "refs/heads/space-agent", PushReason.REFUSED),
}


@pytest.mark.parametrize("name", LIMITS)
def test_o07_a_limit_of_the_server_is_named(arena: Arena, stub: Stub, name: str) -> None:
    """Control: without it the same push succeeds."""
    key, value, expected = LIMITS[name]
    commit(arena, "".join(map(str, range(20_000))))
    stub.most_bytes = None if key else 1000
    if key:
        arena.require_git("config", key, value, cwd=arena.root, git_dir=arena.remote)
    with refused(ErrorCode.PUSH_REJECTED) as caught:
        arena.workbench.push(arena.task.id)
    assert reason(caught) is expected, caught[0].details
    stub.most_bytes = None
    if key:
        arena.require_git("config", "--unset", key, cwd=arena.root, git_dir=arena.remote)
    assert arena.workbench.push(arena.task.id).commit == there(arena)
