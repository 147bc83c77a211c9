"""THREATS S10: a pull request that the task's record does not know, and a forge that does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tenacity
import trustme

from devtools.forges import faults
from devtools.forges.fixtures import GitHub, GitLab, elsewhere, forge_packages, scripted_github, scripted_gitlab
from devtools.forges.github_bodies import Pull
from devtools.forges.gitlab_bodies import MergeRequest
from devtools.forges.server import StandIn
from sandbox import Workbench, retries
from sandbox.credentials import make_credential
from sandbox.errors import ErrorCode
from sandbox.models import Task
from sandbox.workbench.checks import gate
from sandbox.workbench.controller.remote_access import RemoteConnector
from sandbox.workbench.delivery.ready_requests import NO_ANSWER
from tests.attack.arena import refused
from tests.unit.store.test_verdicts import made as passed_run

__all__ = ["elsewhere", "forge_packages"]

pytestmark = pytest.mark.must
ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.devnull}
PATHS = {"github": "/repos/demo-owner/demo/pulls", "gitlab": "/projects/demo-owner%2Fdemo/merge_requests"}


@dataclass(frozen=True)
class Victim:
    """A task whose branch is pushed, of a repository on a forge; it has an unverified second commit."""

    kind: str
    server: GitHub | GitLab
    home: Path
    task: Task

    def open(self, require: str = "pr-ready", hosts: str = "") -> Workbench:
        settings = {
            "remotes": {hosts or f"{self.kind}_hosts": ["127.0.0.1"]},
            "engine": {"host": "unix:///no-engine.sock"},
            "gate": {"require": require},
        }
        return Workbench(self.home, environ=ENVIRON, settings=settings)

    def commit(self, name: str) -> str:
        with self.open() as workbench:
            workbench.write_file(self.task.id, name, "mine\n", None)
            return workbench.commit(self.task.id, name).commit

    def push(self, require: str = "pr-ready") -> str:
        with self.open(require) as workbench:
            return workbench.push(self.task.id).commit

    @property
    def sent(self) -> str:
        """What the branch has on the forge, and so each open request from it."""
        return self.server.rules.branches.all()[self.task.branch]

    def add_request(self, *, base: str = "main", draft: bool = False, fork: str = "") -> None:
        """Another person opens one, in the browser."""
        rules: Any = self.server.rules
        if self.kind == "github":
            number = len(rules.pulls) + 1
            rules.pulls.append(Pull(number, self.task.branch, base, "Theirs", "", draft=draft, fork=fork))
        else:
            title = "Draft: Theirs" if draft else "Theirs"
            number = len(rules.merge_requests) + 1
            rules.merge_requests.append(MergeRequest(number, self.task.branch, base, title, "", sha=self.sent))


def serve(kind: str, folder: Path, log_host: str, authority: trustme.CA) -> AbstractContextManager[GitHub | GitLab]:
    return scripted_github(folder, log_host, authority) if kind == "github" else scripted_gitlab(folder, authority)


@pytest.fixture(params=["github", "gitlab"])
def victim(
    request: pytest.FixtureRequest, tmp_path: Path, forge_packages: None, elsewhere: StandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Victim]:  # fmt: skip
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "credentials.toml").touch(mode=0o600)
    with serve(request.param, tmp_path, elsewhere.url, authority) as server:
        (home / "credentials.toml").write_text(
            f'[[credential]]\nhost = "{server.url.removeprefix("https://")}"\nusername = "oauth2"\n'
            f'secret = "{server.token}"\nca_file = "{tmp_path}/ca.pem"\n'
        )
        settings = {"remotes": {f"{request.param}_hosts": ["127.0.0.1"]}}
        with Workbench(home, environ=ENVIRON, settings=settings) as workbench:
            task = workbench.create_task(workbench.clone(f"{server.url}/demo-owner/demo.git").repository.id)
        found = Victim(request.param, server, home, task)
        found.commit("first")
        server.requests.clear()
        found.push()
        assert not [r for r in server.requests if r.path.endswith(PATHS[found.kind])], "a new branch has no request"
        found.commit("second")
        yield found
        with found.open() as workbench:
            workbench.close_task(task.id, delete_worktree=True, discard=True)


SILENCES = ("an error", "no connection", "no JSON", "a refused token", "no token")


def verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean room passes the tree."""
    verdicts = gate.TreeVerdicts({"test": passed_run()})
    monkeypatch.setattr(gate, "find_tree_verdicts", lambda *_: verdicts)


def test_s10_a_ready_request_of_another_person_gets_no_unverified_tree(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the gate the same push changes the request, and a verified tree does with it."""
    victim.add_request()
    before = victim.sent
    with victim.open() as workbench:
        assert workbench.task(victim.task.id).pr_url is None, "void: the record knows the request"
    with refused(ErrorCode.GATE_CLOSED) as caught:
        victim.push()
    assert victim.sent == before
    assert "/1, which is ready" in caught[0].hint
    assert victim.push("none") == victim.sent != before
    victim.commit("third")
    with refused(ErrorCode.GATE_CLOSED):
        victim.push()
    verify(monkeypatch)
    assert victim.push() == victim.sent


def test_s10_a_server_that_is_not_known_as_a_forge_gets_no_unverified_tree(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a ready request all the same, as here. Control: a server that the operator calls a plain one."""
    victim.add_request()
    before = victim.sent
    with victim.open(hosts="lfs_hosts") as workbench, refused(ErrorCode.GATE_CLOSED) as caught:
        workbench.push(victim.task.id)
    assert (caught[0].reason, victim.sent) == (NO_ANSWER, before)
    assert f"remotes.{victim.kind}_hosts" in caught[0].hint
    assert "remotes.plain_hosts" in caught[0].hint
    with victim.open(hosts="plain_hosts") as workbench:
        assert workbench.push(victim.task.id).commit == victim.sent != before, "void"
    victim.commit("third")
    verify(monkeypatch)
    with victim.open(hosts="lfs_hosts") as workbench:
        assert workbench.push(victim.task.id).commit == victim.sent


def test_s10_a_draft_does_not_hide_an_older_ready_request(victim: Victim) -> None:
    """Control: two drafts, and a ready request of a fork's branch of the same name, do not close the gate."""
    victim.server.push("other")
    victim.add_request(base="other", draft=True)
    victim.add_request(draft=True)
    if victim.kind == "github":
        victim.add_request(fork="another/demo")
    assert victim.push() == victim.sent
    victim.commit("third")
    rules: Any = victim.server.rules
    if victim.kind == "github":
        rules.pulls[0].draft = False
    else:
        rules.merge_requests[0].title = "Theirs"
    before = victim.sent
    with refused(ErrorCode.GATE_CLOSED):
        victim.push()
    assert victim.sent == before


@pytest.mark.parametrize(
    ("victim", "silence"),
    [
        *(("github", silence) for silence in SILENCES),
        ("gitlab", "an error"),
        *(pytest.param("gitlab", silence, marks=pytest.mark.thorough) for silence in SILENCES[1:]),
    ],
    indirect=["victim"],
)
def test_s10_a_forge_that_does_not_answer_does_not_open_the_gate(
    victim: Victim, silence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the answer alone decides; a verified tree needs none."""
    answers: dict[str, Any] = {
        "an error": faults.server_error(),
        "no connection": faults.lost,
        "no JSON": faults.not_json(),
    }
    if silence in answers:
        victim.server.on("GET", PATHS[victim.kind], answers[silence], forever=True)
    else:
        refuse_token(victim, monkeypatch, absent=silence == "no token")
    before = victim.sent
    with refused(ErrorCode.GATE_CLOSED) as caught:
        victim.push()
    assert (caught[0].reason, victim.sent) == (NO_ANSWER, before)
    monkeypatch.undo()
    verify(monkeypatch)
    assert victim.push() == victim.sent != before


def refuse_token(victim: Victim, monkeypatch: pytest.MonkeyPatch, *, absent: bool) -> None:
    """git may push with its credential, but the API gets none, or a wrong one."""
    path = victim.home.parent / "ca.pem"
    wrong = make_credential(host="127.0.0.1", username="oauth2", secret="a-token-that-is-wrong", ca_file=str(path))
    monkeypatch.setattr(RemoteConnector, "find_forge_credential", lambda *_: None if absent else wrong)
