"""Tasks that go on elsewhere: two hosts' homes, a real hub over https, and the rules that keep a verdict right."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devtools.gitserver import GitServer, introduce
from sandbox import Workbench
from sandbox.cluster.dispatcher import draw_task_id
from sandbox.cluster.done_operations import describe_done, digest_operation
from sandbox.cluster.worker import ClusterWorker
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.process import Git
from sandbox.git.push.hub_refs import RefUpdate, list_epochs, name_ref, update_refs
from sandbox.git.transport import RemoteAccess, fetch_ref
from sandbox.models import LeftoverAction, TaskStatus
from sandbox.models.operations import DoneOperation, OperationAnswer, OperationName, TaskOperation
from sandbox.store.home import Home
from sandbox.store.operation_answers import hold_operations
from sandbox.workbench.delivery import hub
from sandbox.workbench.tasks import lifecycle
from tests.e2e.clusters import until

pytestmark = pytest.mark.xdist_group("cluster")
MAKEFILE = "all:\n\t@if test -f wait; then sleep 300; fi\n\ntest:\n\tgrep -q right answer\n"


@dataclass(frozen=True)
class Hosts:
    """Two hosts' workers, the repository that tasks are about, and the hub."""

    first: ClusterWorker
    second: ClusterWorker
    url: str
    server: GitServer
    hub: str


@pytest.fixture(scope="module")
def hosts(git_server: GitServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Shared by the module: each test has a task of its own."""
    base = tmp_path_factory.mktemp("cluster")
    files = base / "files"
    files.mkdir()
    (files / "Makefile").write_text(MAKEFILE)
    (files / "answer").write_text("wrong\n")
    owner = f"cluster-{uuid.uuid4().hex[:8]}"
    git_server.seed(owner, "project", files)
    git_server.create(owner, "hub")
    hub = git_server.https_url(owner, "hub")
    with ExitStack() as stack:
        benches = [stack.enter_context(Workbench(introduce(base / name, git_server))) for name in ("one", "two")]
        yield Hosts(
            ClusterWorker(benches[0], hub),
            ClusterWorker(benches[1], hub),
            git_server.https_url(owner, "project"),
            git_server,
            hub,
        )


def ask(
    worker: ClusterWorker,
    task: str,
    name: OperationName,
    arguments: Mapping[str, Any] | None = None,
    epoch: int = 1,
    key: str = "",
) -> OperationAnswer:
    return worker.perform(
        TaskOperation(id=key or uuid.uuid4().hex, task_id=task, epoch=epoch, name=name, arguments=arguments or {})
    )


def write(content: str, sha256: str | None = None) -> dict[str, Any]:
    return {
        "path": "answer",
        "content": base64.b64encode(content.encode()).decode(),
        "expected_sha256": sha256,
    }


def read(worker: ClusterWorker, task: str, epoch: int = 1) -> dict[str, Any]:
    answer = ask(worker, task, OperationName.READ_FILE, {"path": "answer"}, epoch)
    assert answer.error is None, answer.error
    return dict(answer.value)


def begin(hosts: Hosts) -> str:
    task = draw_task_id()
    created = ask(hosts.first, task, OperationName.CREATE, {"url": hosts.url, "prompt": "Answer right"})
    assert created.error is None, created.error
    assert (created.value["id"], created.value["prompt"]) == (task, "Answer right")
    return task


def test_a_task_goes_on_elsewhere_with_uncommitted_changes_and_commits(hosts: Hosts) -> None:
    task = begin(hosts)
    first = ask(hosts.first, task, OperationName.WRITE_FILE, write("right\n", read(hosts.first, task)["sha256"]))
    assert first.error is None, first.error
    assert ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"}).error is None
    last = ask(hosts.first, task, OperationName.WRITE_FILE, write("right!\n", read(hosts.first, task)["sha256"]))
    assert last.state, "the state is in the hub"

    hosts.second.take_over(hosts.url, task, 2)
    assert read(hosts.second, task, 2)["content"] == "right!\n"
    status = ask(hosts.second, task, OperationName.STATUS, epoch=2).value
    assert (status["ahead"], status["dirty"]) == (1, True)
    verified = ask(hosts.second, task, OperationName.VERIFY, epoch=2)
    assert verified.error is None, verified.error
    assert verified.value["verified"] is True


def test_a_host_that_comes_back_is_refused_by_the_hub(hosts: Hosts) -> None:
    task = begin(hosts)
    hosts.second.take_over(hosts.url, task, 2)
    late = ask(hosts.first, task, OperationName.WRITE_FILE, write("late\n", read(hosts.first, task)["sha256"]))
    assert late.error is not None
    assert (late.error.code, late.error.reason) == ("conflict", "epoch_ended")
    assert read(hosts.second, task, 2)["content"] == "wrong\n"
    mine = ask(hosts.second, task, OperationName.WRITE_FILE, write("right\n", read(hosts.second, task, 2)["sha256"]), 2)
    assert mine.error is None, mine.error


def test_without_the_rule_of_the_hub_the_late_host_would_win(hosts: Hosts) -> None:
    """The control: a plain forced push of the late host's state is accepted by the same server."""
    task = begin(hosts)
    hosts.second.take_over(hosts.url, task, 2)
    bench = hosts.first.workbench
    repo = bench.task(task).repo_id
    clone = bench.home / "repositories" / "clones" / repo
    client = hosts.server.client()
    head = bench.task(task).head_commit
    client.run("push", "--force", hosts.hub, f"{head}:refs/space-sandbox/tasks/{task}/1", cwd=clone)
    assert f"refs/space-sandbox/tasks/{task}/1" in client.run("ls-remote", hosts.hub)


def forge_state(hosts: Hosts, task: str, base: str, **claims: object) -> None:
    """A state on a commit of the forger's, as somebody who can write to the hub may push it. `base`: of its record."""
    bench = hosts.first.workbench
    honest = bench.task(task)
    clone = bench.home / "repositories" / "clones" / honest.repo_id
    client = hosts.server.client()
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")

    def commit(parent: str, message: str) -> str:
        made = client.run(*identity, "commit-tree", f"{parent}^{{tree}}", "-p", parent, "-m", message, cwd=clone)
        return made.strip()

    head = commit(commit(honest.head_commit, "a base of the forger's"), "a head of the forger's")
    bases = {"honest": honest.base_commit, "forged": client.run("rev-parse", f"{head}^", cwd=clone).strip()}
    told = {"head_commit": head, "base_commit": bases[base], "worktree_path": None, **claims}
    state = commit(head, f"State\n\n{honest.model_copy(update=told).model_dump_json()}\n")
    client.run("push", "--force", hosts.hub, f"{state}:refs/space-sandbox/tasks/{task}/1", cwd=clone)


def test_a_state_with_a_base_of_its_own_is_refused(hosts: Hosts) -> None:
    """The base says which checks the gate asks for: a task of the hub's own base would have those of the hub."""
    control, task = begin(hosts), begin(hosts)
    forge_state(hosts, control, "honest")
    hosts.second.take_over(hosts.url, control, 2)
    forge_state(hosts, task, "forged")
    with pytest.raises(SandboxError, match="its base is not in a branch") as caught:
        hosts.second.take_over(hosts.url, task, 2)
    assert caught.value.code == "unsafe_repository"


def test_a_state_with_a_name_that_no_list_has_room_for_is_refused(hosts: Hosts) -> None:
    task = begin(hosts)
    forge_state(hosts, task, "honest", base_branch="x" * 100_000)
    with pytest.raises(SandboxError, match="its names are too long") as caught:
        hosts.second.take_over(hosts.url, task, 2)
    assert caught.value.code == "unsafe_repository"


def test_a_state_does_not_say_what_was_delivered_or_who_owns_the_task(hosts: Hosts) -> None:
    task = begin(hosts)
    forge_state(
        hosts,
        task,
        "honest",
        status=TaskStatus.PR_OPEN,
        pr_url="https://evil.example/1",
        pr_base="evil",
        pr_head="0" * 40,
        session="of-another-agent",
        pushed_at=datetime.now(UTC),
    )
    hosts.second.take_over(hosts.url, task, 2)
    taken = hosts.second.workbench.task(task)
    assert (taken.pr_url, taken.pr_base, taken.pr_head, taken.pushed_at) == (None, None, None, None)
    assert (taken.session, taken.status) == (hosts.second.workbench.caller.session, TaskStatus.COMMITTED)


@pytest.mark.parametrize("task", ["../../registry", "task-1/hub", "task-00000000-0000-4000-8000-000000000000.json"])
def test_what_is_no_id_of_a_task_reaches_no_path_and_no_ref(hosts: Hosts, task: str) -> None:
    with pytest.raises(SandboxError, match="is no id of a task"):
        hosts.second.take_over(hosts.url, task, 2)
    with pytest.raises(SandboxError, match="is no id of a task"):
        hosts.second.workbench.create_named_task(task, hosts.url)


def test_an_operation_is_carried_out_once_for_its_id(hosts: Hosts) -> None:
    task = begin(hosts)
    wish = write("right\n", read(hosts.first, task)["sha256"])
    once = ask(hosts.first, task, OperationName.WRITE_FILE, wish, key="edit-1")
    again = ask(hosts.first, task, OperationName.WRITE_FILE, wish, key="edit-1")
    assert once == again
    assert once.error is None
    control = ask(hosts.first, task, OperationName.WRITE_FILE, wish, key="edit-2")
    assert control.error is not None
    assert control.error.code == "stale_hash", "carried out again, it would be refused"
    other = ask(hosts.first, task, OperationName.WRITE_FILE, write("other\n"), key="edit-1")
    assert other.error is not None
    assert other.error.code == "conflict"


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param(1, id="taken over"),
        pytest.param(2, id="taken over again by a third host", marks=pytest.mark.thorough),
    ],
)
def test_an_operation_whose_answer_was_lost_with_its_host_is_answered_from_the_hub(
    hosts: Hosts, git_server: GitServer, tmp_path: Path, claims: int
) -> None:
    """Its state had reached the hub. Control: the same wish under another id meets its own result."""
    task = begin(hosts)
    wish = write("right\n", read(hosts.first, task)["sha256"])
    lost = ask(hosts.first, task, OperationName.WRITE_FILE, wish, key="edit")
    assert lost.error is None, lost.error
    hosts.second.take_over(hosts.url, task, 2)
    with ExitStack() as stack:
        host = hosts.second
        if claims == 2:
            third = stack.enter_context(Workbench(introduce(tmp_path / "three", git_server)))
            host = ClusterWorker(third, hosts.hub)
            host.take_over(hosts.url, task, 3)
        again = ask(host, task, OperationName.WRITE_FILE, wish, claims + 1, key="edit")
        assert (again.error, again.value) == (None, lost.value)
        assert (again.worker, again.epoch) == (hosts.first.id, claims + 1)
        assert read(host, task, claims + 1)["content"] == "right\n"
        control = ask(host, task, OperationName.WRITE_FILE, wish, claims + 1, key="another")
        assert control.error is not None
        assert control.error.code == "stale_hash"


def test_a_host_takes_a_task_again_and_gives_up_what_it_had_of_it(hosts: Hosts) -> None:
    """It was lost with an edit that the hub does not have. A snapshot of that stays here."""
    task, bench = begin(hosts), hosts.first.workbench
    bench.write_file(task, "stray", b"not in the hub\n", None)
    bench.snapshot(task, "mine")
    hosts.second.take_over(hosts.url, task, 2)
    sha256 = read(hosts.second, task, 2)["sha256"]
    assert ask(hosts.second, task, OperationName.WRITE_FILE, write("right\n", sha256), 2).error is None
    committed = ask(hosts.second, task, OperationName.COMMIT, {"message": "Answer"}, 2)
    assert committed.error is None, committed.error

    with pytest.raises(SandboxError) as too_early:
        hosts.first.take_over(hosts.url, task, 1)
    assert too_early.value.reason == "task_exists"
    hosts.first.take_over(hosts.url, task, 3)
    status = ask(hosts.first, task, OperationName.STATUS, epoch=3).value
    assert (status["head_commit"], status["ahead"], status["dirty"]) == (committed.value["commit"], 1, False)
    assert [one.label for one in bench.snapshots(task)] == ["mine"]
    late = ask(hosts.first, task, OperationName.WRITE_FILE, write("late\n", read(hosts.first, task, 3)["sha256"]), 1)
    assert late.error is not None
    assert (late.error.code, late.error.reason) == ("conflict", "epoch_ended")
    assert read(hosts.first, task, 3)["content"] == "right\n", "an operation of an ended epoch changes no file"
    refused = ask(hosts.second, task, OperationName.WRITE_FILE, {**write("x\n"), "path": "y"}, 2)
    assert refused.error is not None
    assert refused.error.reason == "epoch_ended"


def test_gc_removes_a_task_that_went_on_on_another_host(hosts: Hosts, tmp_path: Path) -> None:
    """Controls: it stays while the hub knows of no other host, while an operation on it is in progress, and if the hub
    does not know it any more.
    """
    task, elsewhere, forgotten = begin(hosts), begin(hosts), begin(hosts)
    home = hosts.first.workbench.home
    waits = {"SANDBOX_CLUSTER_HUB": hosts.hub, "SANDBOX_KEEP_QUARANTINE_DAYS": "1"}
    with Workbench(home, environ={**os.environ, **waits}) as bench:

        def collect() -> dict[str, LeftoverAction]:
            found = bench.collect().leftovers
            return {left.name: left.action for left in found if left.name in {task, elsewhere, forgotten}}

        assert collect() == {}
        client = hosts.server.client()
        client.run("init", "--quiet", str(tmp_path))
        client.run("push", "--quiet", hosts.hub, f":{name_ref(forgotten, 1)}", cwd=tmp_path)
        for one in (task, elsewhere):
            hosts.second.take_over(hosts.url, one, 2)
        assert ask(hosts.second, elsewhere, OperationName.CLOSE, {"delete_worktree": True}, 2).error is None
        assert {*collect().values()} == {LeftoverAction.KEPT}, "the hub may be wrong, and that be noticed"
        assert bench.task(elsewhere).id == elsewhere
        for one in (task, elsewhere):
            os.utime(hub.sent_file(Home(home), one), (1000, 1000))
        with hold_operations(Home(home), task, 0.0):
            expected = {elsewhere: LeftoverAction.REMOVED, forgotten: LeftoverAction.KEPT}
            assert collect() == {task: LeftoverAction.BUSY, **expected}
        assert bench.task(task).id == task
        assert collect() == {task: LeftoverAction.REMOVED, forgotten: LeftoverAction.KEPT}
        assert collect() == {forgotten: LeftoverAction.KEPT}
        assert bench.task(forgotten).id == forgotten
        with pytest.raises(SandboxError) as gone:
            bench.task(task)
        assert gone.value.code is ErrorCode.NOT_FOUND
    assert read(hosts.second, task, 2)["content"] == "wrong\n"
    hosts.first.take_over(hosts.url, task, 3)
    assert read(hosts.first, task, 3)["content"] == "wrong\n"


def test_a_host_takes_a_task_again_in_which_it_only_read(hosts: Hosts) -> None:
    task = begin(hosts)
    hosts.second.take_over(hosts.url, task, 2)
    assert read(hosts.second, task, 2)["content"] == "wrong\n"
    hosts.first.take_over(hosts.url, task, 3)
    hosts.second.take_over(hosts.url, task, 4)
    assert read(hosts.second, task, 4)["content"] == "wrong\n"


@pytest.mark.parametrize("is_sent", [False, True], ids=["before the hub had it", "before it answered"])
def test_a_task_whose_creation_was_interrupted_is_created_again(hosts: Hosts, is_sent: bool) -> None:
    """By the same host, as the only one, in the next epoch. Control: in the same epoch it has the task already."""
    task, bench = draw_task_id(), hosts.first.workbench
    wish = {"url": hosts.url, "prompt": "Answer right"}
    if is_sent:
        assert ask(hosts.first, task, OperationName.CREATE, wish, key="create").error is None
    else:
        bench.create_named_task(task, hosts.url, "Answer right")
        operation = TaskOperation(id="create", task_id=task, name=OperationName.CREATE, arguments=wish)
        with pytest.raises(KeyboardInterrupt):
            bench.answer_once(operation, interrupt)
    control = ask(hosts.first, task, OperationName.CREATE, wish, key="another")
    assert control.error is not None
    assert control.error.reason == "task_exists"
    again = ask(hosts.first, task, OperationName.CREATE, wish, 2, key="create")
    assert again.error is None, again.error
    sha256 = read(hosts.first, task, 2)["sha256"]
    assert ask(hosts.first, task, OperationName.WRITE_FILE, write("right\n", sha256), 2).error is None
    hosts.second.take_over(hosts.url, task, 3)
    assert read(hosts.second, task, 3)["content"] == "right\n"


def test_a_close_whose_answer_was_lost_is_answered_from_the_hub(hosts: Hosts, tmp_path: Path) -> None:
    """By another host, and by the same one. Controls: another operation on it is `not_found`; a task that the hub does
    not know cannot be taken over; a false end is refused.
    """
    wish = {"delete_worktree": True, "discard": True}
    for again in (hosts.second, hosts.first):
        task = begin(hosts)
        first = ask(hosts.first, task, OperationName.CLOSE, wish, key="close")
        assert first.error is None
        again.take_over(hosts.url, task, 2)
        found = ask(again, task, OperationName.CLOSE, wish, 2, key="close")
        assert (found.value, found.error, found.worker) == (first.value, None, hosts.first.id)
        other = ask(again, task, OperationName.STATUS, epoch=2)
        assert other.error is not None
        assert other.error.code == "not_found"
    late = begin(hosts)
    hosts.second.take_over(hosts.url, late, 2)
    closing = TaskOperation(id="close", task_id=late, epoch=2, name=OperationName.CLOSE, arguments=wish)
    assert hosts.second.workbench.close_task(late, delete_worktree=True, discard=True).status is TaskStatus.CLOSED
    done = describe_done(hosts.second.id, closing, {"id": late})
    sent = hub.sent_file(Home(hosts.second.workbench.home), late)
    kept = sent.read_bytes()
    for _ in range(2):  # its push had arrived, and the answer of the server was lost
        sent.write_bytes(kept)
        hosts.second.workbench.end_task_state(hosts.hub, late, 2, done)
    with pytest.raises(SandboxError) as error:
        hosts.first.workbench.send_task_state(hosts.hub, late, 1)
    assert error.value.reason == "epoch_ended", "a lost host does not bring a closed task to life"
    unknown = draw_task_id()
    with pytest.raises(SandboxError) as error:
        hosts.second.take_over(hosts.url, unknown, 2)
    assert (error.value.code, error.value.reason) == (ErrorCode.NOT_FOUND, "no_state")
    client = hosts.server.client()
    end = next(line.split() for line in client.run("ls-remote", hosts.hub).splitlines() if line.endswith(task))
    false = end[1].replace(task, unknown)
    client.run("init", "--quiet", str(tmp_path))
    client.run("fetch", "--quiet", hosts.hub, end[1], cwd=tmp_path)
    client.run("push", "--quiet", hosts.hub, f"{end[0]}:{false}", cwd=tmp_path)
    with pytest.raises(SandboxError) as error:
        hosts.second.take_over(hosts.url, unknown, 2)
    assert error.value.code is ErrorCode.UNSAFE_REPOSITORY


@pytest.mark.parametrize("is_sent", [pytest.param(False, marks=pytest.mark.thorough), True])  # as of a creation, above
def test_a_fork_that_was_interrupted_is_made_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """By the same host, as the only one, in the next epoch. Control: another operation does not replace it."""
    task, fork = begin(hosts), draw_task_id()
    wish = {"fork_id": fork, "prompt": "Another way"}

    def lose(*given: Any) -> str:
        if is_sent:
            send(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        send = hosts.first._send_first
        patched.setattr(hosts.first, "_send_first", lose)
        with pytest.raises(KeyboardInterrupt):
            ask(hosts.first, task, OperationName.FORK, wish, key="fork")
    hosts.second.take_over(hosts.url, task, 2)
    hosts.first.take_over(hosts.url, task, 3)
    control = ask(hosts.first, task, OperationName.FORK, wish, 3, key="another")
    assert control.error is not None
    assert control.error.reason == "task_exists"
    again = ask(hosts.first, task, OperationName.FORK, wish, 3, key="fork")
    assert again.error is None, again.error
    assert again.value["id"] == fork
    sha256 = read(hosts.first, fork, 3)["sha256"]
    assert ask(hosts.first, fork, OperationName.WRITE_FILE, write("right\n", sha256), 3).error is None
    hosts.second.take_over(hosts.url, fork, 4)
    assert read(hosts.second, fork, 4)["content"] == "right\n"


@pytest.mark.parametrize("name", [OperationName.COMMIT, OperationName.FORK])
def test_a_commit_that_did_not_reach_the_hub_is_sent_after_the_next_operation(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, name: OperationName
) -> None:
    """Also after one that is refused, as a second commit is, and that sends another state. Controls: a publisher does
    not get the commit before; another refused operation sends no state.
    """
    task = begin(hosts)
    sha256 = read(hosts.first, task)["sha256"]
    assert ask(hosts.first, task, OperationName.WRITE_FILE, write("right\n", sha256)).error is None

    def lose(*_: Any) -> None:
        raise SandboxError(ErrorCode.NETWORK_ERROR, "The hub is away")

    with monkeypatch.context() as patched:
        patched.setattr(hub, "run_with_hub", lose)
        for expected in ("network_error", "nothing_to_commit"):
            made = ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"})
            assert made.error is not None
            assert made.error.code == expected
    commit = ask(hosts.first, task, OperationName.STATUS).value["head_commit"]
    with Workbench(introduce(hosts.first.workbench.home.parent / f"publisher-{name}", hosts.server)) as publisher:
        with pytest.raises(SandboxError) as early:
            publisher.import_task(hosts.hub, hosts.url, task, commit)
        assert early.value.reason == "state_moved"
        arguments = {"message": "Answer"} if name is OperationName.COMMIT else {"fork_id": draw_task_id()}
        again = ask(hosts.first, task, name, arguments)
        assert (again.error and again.error.code) == ("nothing_to_commit" if name is OperationName.COMMIT else None)
        assert publisher.import_task(hosts.hub, hosts.url, task, commit).head_commit == commit
    sent = hub.sent_file(Home(hosts.first.workbench.home), task)
    before = sent.stat().st_mtime_ns
    assert ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"}).error is not None
    assert sent.stat().st_mtime_ns == before
    hosts.second.take_over(hosts.url, task, 2)
    status = ask(hosts.second, task, OperationName.STATUS, epoch=2).value
    assert (status["head_commit"], status["dirty"]) == (commit, False)


@pytest.mark.parametrize("noted", [1, None], ids=["by this version", "by an earlier one"])
def test_a_host_that_was_interrupted_in_a_fork_takes_the_fork_over(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, noted: int | None
) -> None:
    """Which another host made meanwhile, and lost. Control: in the epoch of that fork the host has it already."""
    task, fork = begin(hosts), draw_task_id()
    with monkeypatch.context() as patched:
        patched.setattr(hosts.first, "_send_first", lambda *_: interrupt())
        with pytest.raises(KeyboardInterrupt):
            ask(hosts.first, task, OperationName.FORK, {"fork_id": fork}, key="fork")
    note = hub.find_record(Home(hosts.first.workbench.home), fork, "forked.json")
    assert json.loads(note.read_text())["epoch"] == 1
    if noted is None:
        note.write_text('{"schema_version": 1, "operation": "fork"}')
    hosts.second.take_over(hosts.url, task, 2)
    assert ask(hosts.second, task, OperationName.FORK, {"fork_id": fork}, 2, "fork").error is None
    assert ask(hosts.second, fork, OperationName.WRITE_FILE, {**write("x"), "path": "new"}, 2).error is None
    if noted is not None:
        with pytest.raises(SandboxError) as control:
            hosts.first.take_over(hosts.url, fork, noted)
        assert control.value.reason == "task_exists"
    hosts.first.take_over(hosts.url, fork, 3)
    assert ask(hosts.first, fork, OperationName.STATUS, epoch=3).value["dirty"] is True


def test_a_host_that_was_interrupted_in_a_take_over_takes_the_task_over(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it had the task's record. Control: in the same epoch it has the task already."""
    task = begin(hosts)
    with monkeypatch.context() as patched:
        patched.setattr(hub, "_write_done", lambda *_: interrupt())
        with pytest.raises(KeyboardInterrupt):
            hosts.second.take_over(hosts.url, task, 2)
    with pytest.raises(SandboxError) as control:
        hosts.second.take_over(hosts.url, task, 2)
    assert control.value.reason == "task_exists"
    hosts.second.take_over(hosts.url, task, 3)
    assert read(hosts.second, task, 3)["content"] == "wrong\n"


@pytest.mark.parametrize("ends_at", ["create_worktree", "save_new_task"])
def test_a_host_that_was_killed_in_a_take_over_takes_the_task_over(hosts: Hosts, ends_at: str) -> None:
    """Before it had the task's record: what it left there is removed, also a commit that the hub has."""
    task = begin(hosts)
    sha256 = read(hosts.first, task)["sha256"]
    assert ask(hosts.first, task, OperationName.WRITE_FILE, write("right\n", sha256)).error is None
    assert ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"}).error is None
    child = os.fork()
    if child == 0:
        setattr(lifecycle, ends_at, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        try:
            hosts.second.take_over(hosts.url, task, 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "void: it was not killed"
    mark = Home(hosts.second.workbench.home).creation_mark(task)
    assert mark.exists(), "control"
    hosts.second.take_over(hosts.url, task, 3)
    assert read(hosts.second, task, 3)["content"] == "right\n"
    assert not mark.exists()


def interrupt() -> OperationAnswer:
    raise KeyboardInterrupt


def test_a_host_that_still_runs_a_check_of_the_task_stops_it_before_it_takes_the_task_again(hosts: Hosts) -> None:
    task = begin(hosts)
    assert ask(hosts.first, task, OperationName.WRITE_FILE, {**write("x"), "path": "wait"}).error is None
    answers: list[OperationAnswer] = []
    check = threading.Thread(
        target=lambda: answers.append(ask(hosts.first, task, OperationName.CHECK, {"check_ids": ["build"]}))
    )
    check.start()
    until(lambda: any(guest.busy and guest.owner == task for guest in hosts.first.workbench.guests().guests))
    hosts.second.take_over(hosts.url, task, 2)
    hosts.first.take_over(hosts.url, task, 3)
    check.join()
    assert answers[0].error is not None
    assert answers[0].error.reason == "epoch_ended"
    assert read(hosts.first, task, 3)["content"] == "wrong\n"


def commit_answer(hosts: Hosts) -> tuple[str, OperationAnswer]:
    """A task whose first host committed, as the operation `commit`."""
    task = begin(hosts)
    changed = ask(hosts.first, task, OperationName.WRITE_FILE, write("right\n", read(hosts.first, task)["sha256"]))
    assert changed.error is None, changed.error
    made = ask(hosts.first, task, OperationName.COMMIT, {"message": "Answer"}, key="commit")
    assert made.error is None, made.error
    hosts.second.take_over(hosts.url, task, 2)
    return task, made


def test_a_commit_whose_answer_was_lost_is_made_once(hosts: Hosts) -> None:
    """Controls: under another id there is nothing to commit; another commit under the same id is another operation."""
    task, lost = commit_answer(hosts)
    again = ask(hosts.second, task, OperationName.COMMIT, {"message": "Answer"}, 2, key="commit")
    assert (again.error, again.value) == (None, lost.value)
    assert ask(hosts.second, task, OperationName.STATUS, epoch=2).value["ahead"] == 1
    control = ask(hosts.second, task, OperationName.COMMIT, {"message": "Answer"}, 2, key="another")
    assert control.error is not None
    assert control.error.code == "nothing_to_commit"
    task, _ = commit_answer(hosts)
    other = ask(hosts.second, task, OperationName.COMMIT, {"message": "Another"}, 2, key="commit")
    assert other.error is not None
    assert (other.error.code, "was another one" in other.error.brief) == ("conflict", True)


def forge_done(hosts: Hosts, task: str, operation: TaskOperation, value: object) -> None:
    """Say in the hub that an operation made the state there, as somebody who can write to it may."""
    bench = hosts.first.workbench
    clone = bench.home / "repositories" / "clones" / bench.task(task).repo_id
    client, ref = hosts.server.client(), f"refs/space-sandbox/tasks/{task}/1"
    client.run("fetch", "--quiet", hosts.hub, ref, cwd=clone)
    record = client.run("log", "-1", "--format=%B", "FETCH_HEAD", cwd=clone).partition("\n\n")[2]
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    done = DoneOperation(
        operation_id=operation.id, digest=digest_operation(operation), epoch=1, worker=hosts.first.id, has_answer=True,
        value=value,
    )  # fmt: skip
    message = f"State of a task\nOperation: {done.model_dump_json()}\n\n{record}"
    words = ("commit-tree", "FETCH_HEAD^{tree}", "-p", "FETCH_HEAD^", "-m", message)
    state = client.run(*identity, *words, cwd=clone).strip()
    client.run("push", "--force", hosts.hub, f"{state}:{ref}", cwd=clone)


@pytest.mark.parametrize("name", [OperationName.VERIFY, pytest.param(OperationName.CHECK, marks=pytest.mark.thorough)])
def test_s146_a_verdict_in_the_hub_is_not_answered(hosts: Hosts, name: OperationName) -> None:
    """Control: what the hub says of an edit is answered."""
    task, forged = begin(hosts), {"verified": True, "verdict": "passed"}
    arguments = {"check_ids": ["test"]} if name is OperationName.CHECK else {}
    asked = TaskOperation(id="asked", task_id=task, epoch=2, name=name, arguments=arguments)
    forge_done(hosts, task, asked, forged)
    hosts.second.take_over(hosts.url, task, 2)
    answer = hosts.second.perform(asked)
    if name is OperationName.VERIFY:
        assert answer.error is None, answer.error
        assert answer.value["verified"] is False
        assert answer.worker == hosts.second.id
    else:
        assert [run["verdict"] for run in answer.value] == ["passed", "failed"]
    control = begin(hosts)
    edit = TaskOperation(
        id="asked", task_id=control, epoch=2, name=OperationName.WRITE_FILE, arguments=write("right\n")
    )
    forge_done(hosts, control, edit, forged)
    hosts.second.take_over(hosts.url, control, 2)
    assert hosts.second.perform(edit).value == forged


def test_ways_that_were_tried_are_not_tried_again_when_the_answer_was_lost(hosts: Hosts) -> None:
    """The best one is the task's state, so they would meet it. Verdicts come from no hub: the loss is said."""
    task = begin(hosts)
    patch = b"--- a/answer\n+++ b/answer\n@@ -1 +1 @@\n-wrong\n+right\n"
    wish = {"patches": {"right": base64.b64encode(patch).decode()}}
    made = ask(hosts.first, task, OperationName.EXPLORE, wish, key="explore")
    assert made.error is None, made.error
    hosts.second.take_over(hosts.url, task, 2)
    assert read(hosts.second, task, 2)["content"] == "right\n"
    again = ask(hosts.second, task, OperationName.EXPLORE, wish, 2, key="explore")
    assert again.error is not None
    assert (again.error.code, again.error.reason) == ("internal", "operation_interrupted")
    assert "was carried out" in again.error.brief


def test_a_task_in_another_state_than_was_expected_is_not_closed(hosts: Hosts) -> None:
    """Control: without a state it is closed."""
    task = begin(hosts)
    refused = ask(
        hosts.first, task, OperationName.CLOSE, {"delete_worktree": True, "discard": True, "expected_tree": "0" * 40}
    )
    assert refused.error is not None
    assert refused.error.code == "conflict"
    closed = ask(hosts.first, task, OperationName.CLOSE, {"delete_worktree": True, "discard": True})
    assert closed.error is None, closed


def test_an_operation_whose_controller_was_killed_is_not_repeated(hosts: Hosts) -> None:
    task = begin(hosts)
    wish = TaskOperation(id="edit-1", task_id=task, name=OperationName.WRITE_FILE, arguments=write("right\n"))

    class KilledError(BaseException):
        pass

    def die() -> OperationAnswer:
        raise KilledError

    with pytest.raises(KilledError):
        hosts.first.workbench.answer_once(wish, die)
    answer = hosts.first.perform(wish)
    assert answer.error is not None
    assert (answer.error.code, answer.error.reason) == ("internal", "operation_interrupted")
    assert read(hosts.first, task)["content"] == "wrong\n"


def test_two_hosts_that_take_over_at_once_do_not_both_get_the_task(
    hosts: Hosts, git_server: GitServer, tmp_path: Path
) -> None:
    task = begin(hosts)
    with Workbench(introduce(tmp_path / "three", git_server)) as bench:
        both = [hosts.second, ClusterWorker(bench, hosts.hub)]
        outcomes: list[BaseException | None] = []

        def take(worker: ClusterWorker) -> None:
            try:
                worker.take_over(hosts.url, task, 2)
                outcomes.append(None)
            except Exception as error:  # noqa: BLE001 - the outcome is the error
                outcomes.append(error)

        threads = [threading.Thread(target=take, args=(worker,)) for worker in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [getattr(o, "reason", o) for o in sorted(outcomes, key=str)].count(None) == 1
        assert "epoch_ended" in {getattr(o, "reason", "") for o in outcomes}


def test_a_claim_that_the_server_shows_half_is_a_claim(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server writes new refs before it deletes old ones. Who pushes between the two, with the same commit for the new
    ref, has nothing to push but the deletion, which succeeds.
    """
    task = begin(hosts)
    pushed = list[Mapping[str, RefUpdate]]()

    def update_after_another_claim(git: Git, access: RemoteAccess, updates: Mapping[str, RefUpdate]) -> None:
        if not pushed:
            seen = list_epochs(git, access, task)[1]
            update_refs(git, access, {name_ref(task, 2): RefUpdate(seen, None)})
        pushed.append(updates)
        update_refs(git, access, updates)

    monkeypatch.setattr(hub, "update_refs", update_after_another_claim)
    with pytest.raises(SandboxError) as caught:
        hosts.second.take_over(hosts.url, task, 2)
    assert (caught.value.reason, len(pushed)) == ("epoch_ended", 1)


def test_a_state_that_is_claimed_before_it_is_fetched_is_a_claim(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    task = begin(hosts)
    fetched: list[str] = []

    def fetch_after_another_claim(git: Git, access: RemoteAccess, ref: str, local: str, *, partial: bool) -> None:
        if not fetched:
            seen = list_epochs(git, access, task)[1]
            fetch_ref(git, access, ref, local, partial=partial)
            claim = {name_ref(task, 2): RefUpdate(seen, None), name_ref(task, 1): RefUpdate(None, seen)}
            update_refs(git, access, claim)
        fetched.append(ref)
        fetch_ref(git, access, ref, local, partial=partial)

    monkeypatch.setattr(hub, "fetch_ref", fetch_after_another_claim)
    with pytest.raises(SandboxError) as caught:
        hosts.second.take_over(hosts.url, task, 2)
    assert (caught.value.code, caught.value.reason, len(fetched)) == ("conflict", "epoch_ended", 1)
