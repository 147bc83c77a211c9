"""What the story plays on: the archives, the git server with their repositories, and an empty home with credentials."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from demo.command import DemoError, Sandbox
from demo.inputs import Project
from devtools.gitserver import GitServer
from devtools.published import fetch, unpack

OWNER = "demo"


@dataclass(frozen=True)
class Stage:
    """`commits`: what the server holds on `main`, by project name. `folder`: for the files the story writes."""

    folder: Path
    sandbox: Sandbox
    server: GitServer
    commits: dict[str, str]

    def url(self, project: Project) -> str:
        """Where the project is served; https when this host has no ssh command."""
        if project.transport == "ssh" and shutil.which("ssh"):
            return self.server.ssh_url(OWNER, project.name)
        return self.server.https_url(OWNER, project.name)


@contextmanager
def stage(folder: Path, projects: tuple[Project, ...]) -> Iterator[Stage]:
    """Set the stage in `folder`, one demo at a time. The archives and the home stay for a look; the server goes."""
    folder.mkdir(exist_ok=True)
    try:
        lock = filelock.FileLock(folder / "lock", timeout=0)
        with lock:
            for project in projects:
                archive = fetch(project, folder / "cache", os.environ)
                unpack(archive, folder / "source" / project.name, project.leave_out)
            home = _empty_home(folder / "home")
            with GitServer() as server:
                commits = _seed(server, folder / "source", projects)
                _write_credentials(home, server)
                yield Stage(folder, Sandbox(home), server, commits)
    except filelock.Timeout as error:
        raise DemoError("Another demo is running in this checkout") from error


def _seed(server: GitServer, sources: Path, projects: tuple[Project, ...]) -> dict[str, str]:
    """Each project becomes a repository on the server, all at once. Returns their commits by name."""

    def one(project: Project) -> str:
        return server.seed(OWNER, project.name, sources / project.name, f"{project.name} {project.version}")

    with ThreadPoolExecutor(len(projects)) as pool:
        return dict(zip((p.name for p in projects), pool.map(one, projects), strict=True))


def _empty_home(home: Path) -> Path:
    if home.exists():
        shutil.rmtree(home)
    home.mkdir(mode=0o700)
    return home.absolute()


def _write_credentials(home: Path, server: GitServer) -> None:
    path = home / "credentials.toml"
    path.touch(mode=0o600)
    path.write_text(
        f'[[credential]]\nhost = "{server.https_host}"\nusername = "{server.username}"\n'
        f'secret = "{server.password}"\nca_file = "{server.ca_file}"\n\n'
        f'[[credential]]\nhost = "{server.ssh_host}"\nssh_key = "{server.ssh_key_file}"\n'
    )
