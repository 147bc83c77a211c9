"""A host that continues a task which it had before: what it has goes when the hub's state is here, not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.workbench.delivery import hub, hub_states
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk

HUB = "https://hub.example/x/y"


def with_hub_refs(act: Callable[..., object]) -> Callable[..., object]:
    """As a server would show them: of a local repository our git sees only some places."""

    def run(git: Git, access: RemoteAccess, *args: object, **options: object) -> object:
        return act(git, replace(access, shown=("refs/space-sandbox",)), *args, **options)

    return run


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A home that has sent its task to a hub, and has later work which did not arrive there."""
    desk = Desk(upstream, tmp_path / "sandbox-home")
    store = tmp_path / "hub"
    desk.upstream.git("init", "--quiet", "--bare", str(store))
    monkeypatch.setattr(hub, "_parse_hub", lambda services, _: services.remotes.parse(str(store)))
    for name in ("list_epochs", "find_end", "fetch_ref"):
        monkeypatch.setattr(hub, name, with_hub_refs(getattr(hub, name)))
    with desk.workbench:
        desk.write("f", b"sent\n")
        hub.send_state(desk.workbench._services, HUB, desk.task.id, 1)
        desk.write("f", b"committed while the hub was away\n")
        desk.workbench.commit(desk.task.id, "work")
        desk.write("f", b"uncommitted, too\n")
        yield desk


def take_over(desk: Desk) -> None:
    hub.take_over(desk.workbench._services, HUB, str(desk.upstream.root), desk.task.id, 2)


@pytest.mark.parametrize("failing", ["update_refs", "fetch_ref", "hub_states.read_state", "clone.fetch_whole_tree"])
def test_a_state_that_cannot_be_taken_costs_nothing_of_the_one_that_is_here(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "no room")

    before, task, files = desk.refs(), desk.workbench.task(desk.task.id), on_disk(desk.root)
    with monkeypatch.context() as patched:
        patched.setattr(f"sandbox.workbench.delivery.hub.{failing}", fail)
        with refused(ErrorCode.QUOTA_EXCEEDED):
            take_over(desk)
    assert (desk.refs(), desk.workbench.task(desk.task.id), on_disk(desk.root)) == (before, task, files)


def test_a_damaged_state_is_not_claimed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SandboxError(ErrorCode.UNSAFE_REPOSITORY, "damaged")

    with monkeypatch.context() as patched:
        patched.setattr("sandbox.workbench.delivery.hub.hub_states.read_state", fail)
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            take_over(desk)
    take_over(desk)
    assert (desk.root / "f").read_bytes() == b"sent\n"
    assert desk.workbench.task(desk.task.id).head_commit == desk.task.base_commit
    assert not [ref for ref in desk.refs() if ref.split()[0].endswith("/hub")]


def test_s243_a_state_with_a_time_without_a_zone_is_damaged(desk: Desk) -> None:
    """Its record would be compared with those of this home. Control: the same time with its zone."""
    task, git = desk.task, desk.workbench._services.repositories.open(desk.task.repo_id)[1]
    for created_at in (task.created_at, task.created_at.replace(tzinfo=None)):
        record = task.model_copy(update={"created_at": created_at})
        state = hub_states.commit_state(git, record, objects.tree_of(git, task.head_commit), None)
        if created_at.tzinfo:
            assert hub_states.read_state(git, state, task.id, task.repo_id).task.created_at == created_at
            continue
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            hub_states.read_state(git, state, task.id, task.repo_id)


def test_a_task_that_is_in_use_is_not_claimed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_LOCK_WAIT_S", 0.0)
    with desk.workbench._services.home.locked(desk.task.id), refused(ErrorCode.CONFLICT) as caught:
        take_over(desk)
    assert caught.value.reason == "task_exists"
    take_over(desk)
