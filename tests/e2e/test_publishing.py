"""A task of a cluster is pushed by a controller that has the credentials, and takes no worker's word for anything."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.gitserver import introduce
from sandbox import Workbench
from sandbox.cluster.noted_call import NotedCall
from sandbox.cluster.publisher import ClusterPublisher
from sandbox.models import Actor, Task, TaskStatus
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.workbench.delivery import imported_tasks
from tests.e2e.test_cluster import Hosts, ask, begin, hosts, read, write

__all__ = ["hosts"]

pytestmark = pytest.mark.xdist_group("cluster")
WEAK = 'label = "Weak"\nimage = "build"\n[[check]]\nid = "nothing"\nlabel = "nothing"\nargv = ["true"]\n'


@pytest.fixture(scope="module")
def home(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the controller that publishes."""
    found = introduce(tmp_path_factory.mktemp("publisher") / "home", hosts.server)
    profiles = found / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "weak.toml").write_text(WEAK)
    return found


@pytest.fixture
def publisher(hosts: Hosts, home: Path, request: pytest.FixtureRequest) -> Iterator[ClusterPublisher]:
    """`request.param`: what its gate asks for; with a gate, the policy asks no person."""
    require = getattr(request, "param", "pr-ready")
    with Workbench(home, actor=Actor.AGENT, settings={"gate": {"require": require}}) as bench:
        yield ClusterPublisher(bench, hosts.hub)


@pytest.fixture
def nobody_asked(home: Path) -> Iterator[None]:
    policy = home / "policies" / "approvals.toml"
    policy.parent.mkdir(exist_ok=True)
    policy.write_text('[tools]\nspace_repo_push = "allow"\n')
    yield
    policy.unlink()


def answer_right(hosts: Hosts, content: str = "right\n") -> tuple[str, str]:
    """A task with one commit, on a worker: its id, and the commit."""
    task = begin(hosts)
    wish = write(content, read(hosts.first, task)["sha256"])
    assert ask(hosts.first, task, OperationName.WRITE_FILE, wish).error is None
    made = ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"})
    assert made.error is None, made.error
    return task, str(made.value["commit"])


def push(hosts: Hosts, publisher: ClusterPublisher, task: str, commit: str) -> OperationAnswer:
    wish = TaskOperation(id=uuid.uuid4().hex, task_id=task, name=OperationName.PUSH, arguments={"commit": commit})
    return publisher.perform(hosts.url, wish, lambda: False)


def sent(hosts: Hosts, task: str) -> str | None:
    """The commit on the task's branch at the remote."""
    found = hosts.server.client().run("ls-remote", hosts.url, f"refs/heads/{hosts.first.workbench.task(task).branch}")
    return found.split()[0] if found else None


def refusal(answer: OperationAnswer) -> tuple[str, str | None]:
    assert answer.error is not None, answer.value
    return answer.error.code, answer.error.reason


def forge_state(hosts: Hosts, task: str, path: str = "", merged: str = "", **claims: object) -> str:
    """Move the hub's ref to a commit of the forger's that adds a file, with an honest base. Returns the commit.
    `merged`: a branch of the repository to merge before; without a file, it is the last commit.
    """
    bench = hosts.first.workbench
    honest = bench.task(task)
    clone = bench.home / "repositories" / "clones" / honest.repo_id
    git = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    client = hosts.server.client()
    work = clone.parent / f"work-{uuid.uuid4().hex}"
    client.run("clone", "--quiet", hosts.url, str(work))
    client.run("fetch", "--quiet", str(clone), honest.branch, cwd=work)
    client.run("checkout", "--quiet", "--detach", honest.head_commit, cwd=work)
    if merged:
        client.run(*git, "merge", "--quiet", "--no-edit", f"origin/{merged}", cwd=work)
    if path:
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("forged\n")
        client.run("add", "--all", cwd=work)
        client.run(*git, "commit", "--quiet", "-m", "forged", cwd=work)
    head = client.run("rev-parse", "HEAD", cwd=work).strip()
    told = honest.model_copy(update={"head_commit": head, "worktree_path": None, **claims})
    message = f"State\n\n{told.model_dump_json()}\n"
    state = client.run(*git, "commit-tree", f"{head}^{{tree}}", "-p", head, "-m", message, cwd=work).strip()
    client.run("push", "--quiet", "--force", hosts.hub, f"{state}:refs/space-sandbox/tasks/{task}/1", cwd=work)
    return head


def test_a_push_waits_for_a_person_there_and_no_worker_does_it(hosts: Hosts, publisher: ClusterPublisher) -> None:
    task, commit = answer_right(hosts)
    assert refusal(ask(hosts.first, task, OperationName.PUSH, {"commit": commit}))[0] == "policy_violation"
    asked = push(hosts, publisher, task, commit)
    assert refusal(asked)[0] == "approval_required"
    assert asked.error is not None
    assert asked.error.data is not None
    question = publisher.workbench.approval(asked.error.data["approval_id"])
    assert any("answer" in line for line in question.question), question.question
    assert sent(hosts, task) is None
    publisher.workbench.answer_approval(question.id, approved=True, by="a person")
    pushed = push(hosts, publisher, task, commit)
    assert pushed.error is None, pushed.error
    assert (sent(hosts, task), pushed.value["commit"]) == (commit, commit)
    last = publisher.workbench.log(task, limit=1)[0]
    assert (last.operation, last.allowed and last.allowed.how) == ("push", "person")


@pytest.mark.parametrize("is_listed", [False, True], ids=["not listed", "control"])
def test_only_repositories_that_the_settings_name_are_cloned(hosts: Hosts, tmp_path: Path, *, is_listed: bool) -> None:
    """S145: who can reach Temporal cannot make the controller with the credentials fetch what he likes."""
    host, path = hosts.url.removeprefix("https://").split("/", 1)
    pattern = f"{host}/{path.rsplit('/', 1)[0] if is_listed else 'other'}/*"
    task, commit = answer_right(hosts)
    home = introduce(tmp_path / "home", hosts.server)
    with Workbench(home, actor=Actor.AGENT, settings={"cluster": {"publishes": [pattern]}}) as bench:
        answer = push(hosts, ClusterPublisher(bench, hosts.hub), task, commit)
        assert refusal(answer)[0] == ("approval_required" if is_listed else "policy_violation")
        assert len(bench.repositories()) == is_listed


@pytest.mark.usefixtures("nobody_asked")
def test_a_hub_that_was_moved_to_another_commit_gets_nothing_pushed(hosts: Hosts, publisher: ClusterPublisher) -> None:
    """Control: the same state is pushed if its commit is the one that is asked for."""
    task, commit = answer_right(hosts)
    forged = forge_state(hosts, task, "forged")
    assert refusal(push(hosts, publisher, task, commit)) == ("conflict", "state_moved")
    assert sent(hosts, task) is None
    control = push(hosts, publisher, task, forged)
    assert control.error is None, control.error
    assert sent(hosts, task) == forged


@pytest.mark.usefixtures("nobody_asked")
def test_a_path_that_no_edit_may_write_is_not_pushed_from_the_hub(
    hosts: Hosts, publisher: ClusterPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = answer_right(hosts)
    forged = forge_state(hosts, task, ".github/workflows/steal.yml")
    assert refusal(push(hosts, publisher, task, forged))[0] == "unsafe_path"
    assert sent(hosts, task) is None
    monkeypatch.setattr(imported_tasks, "_require_paths", lambda *_: None)
    assert push(hosts, publisher, task, forged).error is None, "control: without the check it is sent"


@pytest.mark.usefixtures("nobody_asked")
@pytest.mark.parametrize("publisher", ["push"], indirect=True)
def test_a_worker_that_says_which_checks_count_does_not_open_the_gate(
    hosts: Hosts, publisher: ClusterPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tree fails the checks of the repository's profile and passes those of the profile that its record names."""
    task, _ = answer_right(hosts, "wrong again\n")
    lied = forge_state(hosts, task, "forged", profile="weak", status=TaskStatus.PR_OPEN)
    refused = push(hosts, publisher, task, lied)
    assert refusal(refused)[0] == "gate_closed"
    assert sent(hosts, task) is None
    good, commit = answer_right(hosts)
    assert push(hosts, publisher, good, commit).error is None, "a tree that passes here is sent"

    honest = imported_tasks._draft

    def believe(services: Any, recorded: Task) -> Task:
        return honest(services, recorded).model_copy(update={"profile": recorded.profile})

    monkeypatch.setattr(imported_tasks, "_draft", believe)
    other, _ = answer_right(hosts, "wrong again\n")
    lied = forge_state(hosts, other, "forged", profile="weak")
    control = push(hosts, publisher, other, lied)
    assert control.error is None, control.error


@pytest.mark.usefixtures("nobody_asked")
def test_s142_a_merge_takes_no_denied_path_from_another_branch(
    hosts: Hosts, publisher: ClusterPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote has the file on a branch of its own, so no commit that would be sent changes it by itself."""
    work, client = publisher.workbench.home / f"other-{uuid.uuid4().hex}", hosts.server.client()
    client.run("clone", "--quiet", hosts.url, str(work))
    (work / ".github/workflows").mkdir(parents=True)
    (work / ".github/workflows/steal.yml").write_text("of another branch\n")
    client.run("add", "--all", cwd=work)
    client.run("-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "-q", "-m", "other", cwd=work)
    client.run("push", "--quiet", "origin", "HEAD:refs/heads/other", cwd=work)
    task, _ = answer_right(hosts)
    merge = forge_state(hosts, task, merged="other")
    assert refusal(push(hosts, publisher, task, merge))[0] == "unsafe_path"
    assert sent(hosts, task) is None
    monkeypatch.setattr(imported_tasks, "_require_paths", lambda *_: None)
    assert push(hosts, publisher, task, merge).error is None, "control: without the check it is sent"


def test_s143_an_approval_does_not_hold_when_the_hub_names_another_base_later(
    hosts: Hosts, publisher: ClusterPublisher
) -> None:
    """What is shown is the difference to the base, and the branch that a pull request goes into."""
    task, commit = answer_right(hosts)
    asked = push(hosts, publisher, task, commit)
    assert asked.error is not None
    assert asked.error.data is not None
    publisher.workbench.answer_approval(asked.error.data["approval_id"], approved=True, by="a person")
    assert forge_state(hosts, task, base_branch="production") == commit
    other = push(hosts, publisher, task, commit)
    assert refusal(other)[0] == "approval_required"
    assert other.error is not None
    assert other.error.data is not None
    assert any("production" in line for line in publisher.workbench.approval(other.error.data["approval_id"]).question)
    assert sent(hosts, task) is None
    assert forge_state(hosts, task) == commit
    control = push(hosts, publisher, task, commit)
    assert control.error is None, control.error


@pytest.mark.usefixtures("nobody_asked")
def test_a_publisher_that_died_while_it_took_the_next_commit_takes_it_again(
    hosts: Hosts, publisher: ClusterPublisher
) -> None:
    """Its branch has moved and its record has not."""
    task, commit = answer_right(hosts)
    publisher.workbench.import_task(hosts.hub, hosts.url, task, commit)
    following = forge_state(hosts, task, "more")
    known = publisher.workbench.task(task)
    clones = publisher.workbench.home / "repositories/clones" / known.repo_id
    client = hosts.server.client()
    client.run("-C", str(clones), "fetch", "--quiet", hosts.hub, f"refs/space-sandbox/tasks/{task}/1")
    client.run("-C", str(clones), "update-ref", f"refs/heads/{known.branch}", following)
    again = push(hosts, publisher, task, following)
    assert again.error is None, again.error
    assert sent(hosts, task) == following


@pytest.mark.usefixtures("nobody_asked")
def test_a_task_that_took_over_a_newer_base_is_pushed_again(hosts: Hosts, home: Path) -> None:
    """Its base in this home moves with it. Control: a state with another branch of its own is refused."""
    plain = {"remotes": {"plain_hosts": ["127.0.0.1"]}}
    with Workbench(home, actor=Actor.AGENT, settings=plain) as bench:
        push_twice(hosts, ClusterPublisher(bench, hosts.hub))


def push_twice(hosts: Hosts, publisher: ClusterPublisher) -> None:
    task, commit = answer_right(hosts)
    assert push(hosts, publisher, task, commit).error is None
    work, client = publisher.workbench.home / f"newer-{uuid.uuid4().hex}", hosts.server.client()
    client.run("clone", "--quiet", hosts.url, str(work))
    (work / "newer").write_text("newer\n")
    client.run("add", "--all", cwd=work)
    client.run("-c", "user.name=A", "-c", "user.email=a@example.invalid", "commit", "-q", "-m", "newer", cwd=work)
    client.run("push", "--quiet", "origin", "HEAD:refs/heads/main", cwd=work)
    synced = ask(hosts.first, task, OperationName.SYNC)
    assert synced.error is None, synced.error
    merge = str(synced.value["head_commit"])
    again = push(hosts, publisher, task, merge)
    assert again.error is None, again.error
    assert sent(hosts, task) == merge
    known = publisher.workbench.task(task)
    assert (known.base_commit, known.base_branch) == (synced.value["base_commit"], "main")
    assert forge_state(hosts, task, branch=f"space-agent/{task}-other") == merge
    assert refusal(push(hosts, publisher, task, merge))[0] == "unsafe_repository"


@pytest.mark.parametrize("is_noted", [True, False])
def test_an_approval_that_a_kill_left_without_a_push_holds_once_more(
    hosts: Hosts, publisher: ClusterPublisher, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    """Control: without a note of the call a person is asked again."""

    class KilledError(BaseException):
        pass

    def die(*_: object) -> OperationAnswer:
        raise KilledError

    if not is_noted:
        monkeypatch.setattr(NotedCall, "note", lambda *_: None)
    task, commit = answer_right(hosts)
    asked = push(hosts, publisher, task, commit)
    assert asked.error is not None
    assert asked.error.data is not None
    publisher.workbench.answer_approval(asked.error.data["approval_id"], approved=True, by="a person")
    with monkeypatch.context() as killed:
        killed.setattr(publisher, "_carry_out", die)
        with pytest.raises(KilledError):
            push(hosts, publisher, task, commit)
    again = push(hosts, publisher, task, commit)
    if not is_noted:
        assert refusal(again)[0] == "approval_required"
        return
    assert again.error is None, again.error
    assert sent(hosts, task) == commit
    assert refusal(push(hosts, publisher, task, commit))[0] == "approval_required", "it is used up now"
