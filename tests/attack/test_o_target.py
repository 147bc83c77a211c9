"""THREATS O03: where a pull request goes is the record's to say, not the checkout's, where a guest writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from devtools.forges.fixtures import GitHub, elsewhere, forge_packages, scripted_github
from devtools.forges.server import StandIn
from devtools.gitserver.client import GitClient
from sandbox import Workbench
from sandbox.models import Task

__all__ = ["elsewhere", "forge_packages"]

pytestmark = pytest.mark.must


@dataclass(frozen=True)
class Victim:
    """A task of a repository that GitHub serves, over one https address for git and the API."""

    github: GitHub
    workbench: Workbench
    task: Task
    folder: Path

    @property
    def checkout(self) -> Path:
        return Path(str(self.task.worktree_path))

    def git(self, *arguments: str) -> str:
        """Plain git in the checkout, as `gh` and people use it."""
        client = GitClient(self.folder, self.folder / "ca.pem", "")
        return client.run("-c", "safe.directory=*", *arguments, cwd=self.checkout).strip()


@pytest.fixture
def victim(tmp_path: Path, forge_packages: None, elsewhere: StandIn) -> Iterator[Victim]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with scripted_github(tmp_path, elsewhere.url, authority) as github:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        lines = ["[[credential]]", f'host = "{github.url.removeprefix("https://")}"', 'username = "x"',
                 f'secret = "{github.token}"', f'ca_file = "{tmp_path}/ca.pem"']  # fmt: skip
        (home / "credentials.toml").write_text("\n".join(lines) + "\n")
        (home / "credentials.toml").chmod(0o600)
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        for name in ("GH_REPO", "GH_HOST", "GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_BASE_REF", "GITHUB_HEAD_REF"):
            environ[name] = elsewhere.url
        settings = {"remotes": {"github_hosts": ["127.0.0.1"]}}
        with Workbench(home, environ=environ, settings=settings) as workbench:
            repository = workbench.clone(f"{github.url}/demo-owner/demo.git").repository
            task = workbench.create_task(repository.id)
            yield Victim(github, workbench, task, tmp_path)


def lead_away(victim: Victim, url: str) -> None:
    """What a guest writes where the checkout's git looks: another remote, another base, another branch."""
    pointer = victim.checkout / ".git"
    pointer.unlink(missing_ok=True)
    victim.git("init", "--quiet", "--initial-branch=main")
    for key, value in {"remote.origin.url": f"{url}/attacker/demo.git", "remote.origin.gh-resolved": "base",
                       "remote.upstream.url": f"{url}/attacker/up.git", "remote.pushDefault": "upstream",
                       "branch.main.remote": "upstream", "github.user": "attacker"}.items():  # fmt: skip
        victim.git("config", key, value)


def test_o03_a_checkouts_remotes_do_not_say_where_a_pull_request_goes(
    victim: Victim, elsewhere: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    (victim.checkout / "f.txt").write_text("mine\n")
    commit = victim.workbench.commit(victim.task.id, "Change").commit
    lead_away(victim, elsewhere.url)
    monkeypatch.chdir(victim.checkout)
    assert victim.git("config", "remote.origin.gh-resolved") == "base", "void"
    victim.git("ls-remote", "origin")
    assert elsewhere.requests, "void: nobody is led away"
    elsewhere.requests.clear()
    opened = victim.workbench.open_pull_request(victim.task.id)
    [pull] = victim.github.rules.pulls
    assert (pull.head, pull.base, pull.last_head) == (victim.task.branch, "main", commit)
    assert victim.github.rules.branches.all()[victim.task.branch] == commit
    assert opened.url.startswith(f"{victim.github.url}/demo-owner/demo/pull/")
    assert victim.workbench.pull_request_status(victim.task.id).head_commit == commit
    assert elsewhere.requests == []
