"""Fixtures that a `conftest.py` imports by name. Absent packages: a skip on a laptop, a failure in CI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from github import Auth, Github
from trustme import CA

from devtools.forges.branches import Branches
from devtools.forges.emulator import EmulatedRepository, EmulatedRules, emulating
from devtools.forges.githttp import GitHttp
from devtools.forges.github import GitHubRules
from devtools.forges.gitlab import GitLabRules
from devtools.forges.packages import installed
from devtools.forges.server import Elsewhere, StandIn, serving
from devtools.requirement import unavailable

GITLAB_TOKEN = "glpat-StandInToken012345"  # noqa: S105 - known to nothing but the stand-in
TOKEN = "ghp_StandInToken0123456789abcdefghijklmn"  # noqa: S105 - known to nothing but the stand-in


class GitHub(StandIn):
    """`rules`: its state."""

    rules: GitHubRules

    def push(self, branch: str, subject: str = "change") -> str:
        """A new commit on a branch, which begins at the default branch: its id."""
        return self.rules.branches.push(branch, subject, self.rules.default_branch)


class GitLab(StandIn):
    """`rules`: its state. Clients that add `/api/v4` themselves take `url`."""

    rules: GitLabRules

    def push(self, branch: str, subject: str = "change") -> str:
        """A new commit on a branch, which begins at the default branch: its id."""
        return self.rules.branches.push(branch, subject, self.rules.default_branch)


def client_of(stand_in: StandIn) -> Github:
    """PyGithub, which waits for nothing: a client of GitHub that is not ours."""
    return Github(
        auth=Auth.Token(stand_in.token),
        base_url=stand_in.api_url,
        retry=None,
        seconds_between_requests=0,
        seconds_between_writes=0,
    )


@pytest.fixture
def forge_packages() -> None:
    """What npm gives us."""
    if not installed():
        unavailable("no stand-in for GitHub and no description of it: scripts/setup tools")


@pytest.fixture
def elsewhere() -> Iterator[StandIn]:
    """Another host, which must see no token."""
    other = StandIn(Elsewhere())
    with serving(other):
        yield other


@contextmanager
def scripted_github(folder: Path, log_host: str, authority: CA | None = None) -> Iterator[GitHub]:
    """A GitHub without pull requests, over https with an authority; git is at `/demo-owner/demo.git`."""
    rules = GitHubRules(_new(folder / "github.git"), TOKEN, log_url=lambda job: f"{log_host}/logs/{job}?sig=signed")
    stand_in = GitHub(rules, TOKEN, GitHttp("/demo-owner/demo.git", rules.branches.folder, TOKEN))
    with serving(stand_in, authority):
        yield stand_in
    require_fit(stand_in)


@contextmanager
def scripted_gitlab(folder: Path, authority: CA | None = None) -> Iterator[GitLab]:
    """A GitLab without merge requests, likewise."""
    rules = GitLabRules(_new(folder / "gitlab.git"), GITLAB_TOKEN)
    stand_in = GitLab(rules, GITLAB_TOKEN, GitHttp("/demo-owner/demo.git", rules.branches.folder, GITLAB_TOKEN))
    with serving(stand_in, authority):
        yield stand_in
    require_fit(stand_in)


def _new(folder: Path) -> Branches:
    branches = Branches(folder)
    branches.create("main")
    return branches


@pytest.fixture
def github(tmp_path: Path, forge_packages: None, elsewhere: StandIn) -> Iterator[GitHub]:
    """Over http. Logs of jobs are `elsewhere`, as GitHub has them."""
    with scripted_github(tmp_path, elsewhere.url) as stand_in:
        yield stand_in


@pytest.fixture
def gitlab(tmp_path: Path) -> Iterator[GitLab]:
    """Over http."""
    with scripted_gitlab(tmp_path) as stand_in:
        yield stand_in


def require_fit(stand_in: StandIn) -> None:
    """Fail when something did not fit its description, or a token went where it should not."""
    said = stand_in.problems + [f"token in {place}" for place in stand_in.stray_tokens()]
    if said:
        pytest.fail("\n".join(["Not as the forge's description says:", *said]), pytrace=False)


class EmulatedGitHub(StandIn):
    """`repository`: sets up what the emulator has; its full name is new in each test."""

    rules: EmulatedRules
    repository: EmulatedRepository


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One for each test process: its URL."""
    if not installed():
        unavailable("no stand-in for GitHub: scripts/setup tools")
    with emulating(tmp_path_factory.mktemp("emulator") / "log", TOKEN, "demo-owner") as url:
        yield url


@pytest.fixture
def emulated_github(emulator: str, tmp_path: Path) -> Iterator[EmulatedGitHub]:
    """A repository of its own in the emulator, behind a proxy that validates."""
    stand_in = EmulatedGitHub(EmulatedRules(emulator, TOKEN), TOKEN)
    stand_in.repository = EmulatedRepository(emulator, TOKEN, f"demo-owner/{uuid4().hex}")
    stand_in.repository.create()
    with serving(stand_in):
        yield stand_in
    require_fit(stand_in)
