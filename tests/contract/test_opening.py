"""Opening a pull request as one use-case: what is asked once, what is asked before the push, what is written down."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from devtools.forges.fixtures import GitHub, elsewhere, forge_packages, scripted_github
from devtools.forges.server import StandIn
from sandbox import Workbench
from sandbox.errors import ErrorCode
from sandbox.models import Task
from sandbox.profiles import Profile
from sandbox.workbench.checks import gate
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import push as delivery
from sandbox.workbench.repositories.commit_facts import TreeSource
from tests.unit.conftest import refused

__all__ = ["elsewhere", "forge_packages"]

SETTINGS = {"remotes": {"github_hosts": ["127.0.0.1"]}, "engine": {"host": "unix:///nobody.sock"}}
ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.devnull}


@dataclass(frozen=True)
class Bench:
    """A task with one commit, of a repository that GitHub serves."""

    github: GitHub
    workbench: Workbench
    task: Task
    home: Path

    def commit(self, message: str) -> None:
        self.workbench.write_file(self.task.id, f"{message}.txt", "mine\n", None)
        self.workbench.commit(self.task.id, message)

    def branches(self) -> list[str]:
        return sorted(self.github.rules.branches.all())


@pytest.fixture
def bench(tmp_path: Path, forge_packages: None, elsewhere: StandIn) -> Iterator[Bench]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    credentials = home / "credentials.toml"
    credentials.touch(mode=0o600)
    with scripted_github(tmp_path, elsewhere.url, authority) as github:
        lines = ["[[credential]]", f'host = "{github.url.removeprefix("https://")}"', 'username = "x"',
                 f'secret = "{github.token}"', f'ca_file = "{tmp_path}/ca.pem"']  # fmt: skip
        credentials.write_text("\n".join(lines) + "\n")
        with Workbench(home, environ=ENVIRON, settings=SETTINGS) as workbench:
            repository = workbench.clone(f"{github.url}/demo-owner/demo.git").repository
            made = Bench(github, workbench, workbench.create_task(repository.id), home)
            made.commit("first")
            yield made


def test_what_clean_rooms_said_is_asked_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    real = gate.find_tree_verdicts

    def known(services: Services, profile: Profile, source: TreeSource) -> gate.TreeVerdicts:
        asked.append(source.tree)
        return real(services, profile, source)

    monkeypatch.setattr(gate, "find_tree_verdicts", known)
    assert bench.workbench.open_pull_request(bench.task.id).created
    assert len(asked) == 1


def test_without_a_token_nothing_is_pushed(bench: Bench) -> None:
    (bench.home / "credentials.toml").unlink()
    bench.github.requests.clear()
    with Workbench(bench.home, environ=ENVIRON, settings=SETTINGS) as without, refused(ErrorCode.AUTH_FAILED) as caught:
        without.open_pull_request(bench.task.id)
    assert "no token" in caught.value.brief
    assert (bench.branches(), bench.github.requests) == (["main"], [])


def test_a_commit_that_comes_meanwhile_is_neither_pushed_nor_described(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delivery.push_with_page

    def push(*arguments: object, **named: object) -> object:
        bench.commit("second")
        return real(*arguments, **named)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(delivery, "push_with_page", push)
    with refused(ErrorCode.CONFLICT):
        bench.workbench.open_pull_request(bench.task.id)
    assert (bench.branches(), bench.github.rules.pulls) == (["main"], [])


def test_a_task_that_is_closed_because_its_pull_request_is_says_so_in_its_journal(bench: Bench) -> None:
    opened = bench.workbench.open_pull_request(bench.task.id)
    bench.github.rules.pulls[0].state = "closed"
    bench.workbench.pull_request_status(bench.task.id)
    last = bench.workbench.log(bench.task.id)[-1]
    assert (last.operation, last.result) == ("close", "ok")
    assert opened.url in last.names


def test_nothing_unverified_goes_onto_one_that_is_ready(bench: Bench) -> None:
    bench.workbench.open_pull_request(bench.task.id)
    bench.commit("second")
    moved = bench.workbench.push(bench.task.id).commit  # the control: a draft may move
    bench.github.rules.pulls[0].draft = False
    bench.commit("third")
    with refused(ErrorCode.GATE_CLOSED):
        bench.workbench.push(bench.task.id)
    record = bench.home / f"repositories/tasks/{bench.task.id}.json"
    for pr_url in ("https://github.example/known", None):  # none: we were killed after opening it, or did not open it
        record.write_text(json.dumps(json.loads(record.read_text()) | {"pr_url": pr_url}))
        with refused(ErrorCode.GATE_CLOSED):
            bench.workbench.open_pull_request(bench.task.id)
    assert bench.github.rules.branches.all()[bench.task.branch] == moved
    with Workbench(bench.home, environ=ENVIRON, settings=SETTINGS | {"gate": {"require": "none"}}) as free:
        assert free.push(bench.task.id).commit != moved


def test_a_task_that_begins_at_no_branch_has_nowhere_to_go_and_nothing_is_pushed(bench: Bench) -> None:
    begun = [bench.workbench.create_task(bench.task.repo_id, base_branch=b) for b in (bench.task.base_commit, "HEAD")]
    for task in begun:
        bench.workbench.write_file(task.id, "new.txt", "mine\n", None)
        bench.workbench.commit(task.id, "new")
    with refused(ErrorCode.INVALID_INPUT):
        bench.workbench.open_pull_request(begun[0].id)
    assert bench.branches() == ["main"]
    assert bench.workbench.open_pull_request(begun[1].id).base == "main"


def test_a_draft_that_goes_into_another_branch_by_now_is_not_made_ready(bench: Bench) -> None:
    bench.workbench.open_pull_request(bench.task.id)
    (pull,) = bench.github.rules.pulls
    bench.github.push("other")
    pull.base = "other"
    with Workbench(bench.home, environ=ENVIRON, settings=SETTINGS | {"gate": {"require": "none"}}) as free:
        with refused(ErrorCode.CONFLICT):
            free.open_pull_request(bench.task.id, draft=False)
        assert pull.draft
        pull.base = "main"
        assert free.open_pull_request(bench.task.id, draft=False).draft is False
