"""The daemon follows open pull requests at each forge: a merged one ends its task as such, a closed one closes it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import remotes
from sandbox.config import ServeSettings
from sandbox.daemon.timers import follow_pull_requests, make_timers, start_timers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Proposal
from sandbox.models import HomeEventKind, Host, Task, TaskStatus
from sandbox.store.home import Home
from sandbox.store.records import save_task
from sandbox.workbench import Workbench
from sandbox.workbench.delivery import pull_requests
from tests.contract.test_forges import SIDES, Side
from tests.unit.conftest import Upstream

ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.devnull}


@dataclass(frozen=True)
class Followed:
    """A task with an open pull request at a stand-in."""

    side: Side
    workbench: Workbench
    task: Task

    def read_status(self) -> TaskStatus:
        return self.workbench.task(self.task.id).status

    def find_head(self) -> str | None:
        found = self.side.forge().find(self.task.branch)
        return None if found is None else found.pull.head_commit

    def pull_events(self) -> list[str]:
        events = self.workbench.events()
        return [e.operation.operation for e in events if e.kind is HomeEventKind.PULL_REQUEST]


@pytest.fixture(params=sorted(SIDES))
def followed(
    request: pytest.FixtureRequest, tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Followed]:
    side = SIDES[request.param](request.getfixturevalue(request.param))
    parse = remotes.parse_remote

    def parse_remote(text: str, **rules: Any) -> remotes.Remote:
        return replace(parse(text, **rules), host=Host(request.param))

    @contextmanager
    def connect(*_: object) -> Iterator[Forge]:
        yield side.forge()

    monkeypatch.setattr(remotes, "parse_remote", parse_remote)
    monkeypatch.setattr(pull_requests, "find_project", lambda *_: None)
    monkeypatch.setattr(pull_requests, "connect_forge", connect)
    upstream.write("f", b"one\n")
    upstream.commit()
    with Workbench(tmp_path / "home", environ=ENVIRON, allow_file=True) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id)
        side.server.push(task.branch)
        pull = side.forge().open(Proposal(task.branch, "main", "Change", "Why", draft=False)).pull
        opened = task.model_copy(update={"status": TaskStatus.PR_OPEN, "pr_url": pull.url})
        save_task(Home(workbench.home), opened)
        yield Followed(side, workbench, opened)
        if workbench.task(task.id).status is not TaskStatus.CLOSED:
            workbench.close_task(task.id, delete_worktree=True, discard=True)


def test_a_merged_one_is_noticed_once(followed: Followed) -> None:
    follow_pull_requests(followed.workbench)
    assert followed.read_status() is TaskStatus.PR_OPEN
    assert followed.pull_events() == []
    followed.side.close(merged=True)
    for _ in range(3):
        follow_pull_requests(followed.workbench)
    assert followed.read_status() is TaskStatus.MERGED
    assert followed.pull_events() == ["pr-merged"]


def test_a_closed_one_closes_its_task_and_keeps_its_files(followed: Followed) -> None:
    followed.side.close()
    follow_pull_requests(followed.workbench)
    assert followed.read_status() is TaskStatus.CLOSED
    assert followed.workbench.task(followed.task.id).pr_head == followed.find_head(), "which the forge keeps"
    assert followed.task.worktree_path is not None
    assert followed.task.worktree_path.exists()


def test_a_forge_that_fails_does_not_end_the_rounds(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the daemon's own timers: what is due is done at the start, and again."""
    ask, asked, ending = followed.workbench.pull_request_status, list[str](), threading.Event()

    def fail_first(task_id: str) -> object:
        asked.append(task_id)
        if len(asked) == 1:
            followed.side.close(merged=True)
            raise SandboxError(ErrorCode.FORGE_ERROR, "it failed")
        ending.set()
        return ask(task_id)

    monkeypatch.setattr(followed.workbench, "pull_request_status", fail_first)
    settings = ServeSettings(reconcile_s=0, storage_s=0, follow_s=0.01)
    for thread in start_timers(make_timers(followed.workbench, settings), ending, look_s=0.01):
        thread.join()
    assert len(asked) == 2
    assert followed.read_status() is TaskStatus.MERGED
