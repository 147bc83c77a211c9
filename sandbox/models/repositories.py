"""The records of repositories, which every command on a task reads."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from sandbox.models.ids import RepoId, SimpleName
from sandbox.models.model import Model
from sandbox.models.words import Host


class ChosenProject(Model):
    """One of several projects of a repository. `subpath`: its folder, '' for the top; its checks run there.

    `profile`: '' as the folder matches. `image`, `limits`, `env`: of its checks, before those of the repository.
    """

    subpath: str = ""
    profile: str = ""
    image: str = ""
    limits: dict[str, int | float] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict, max_length=100)


class ChosenSettings(Model):
    """What the operator chose for one repository. '' and missing names: as detected, and as the profile says.

    `subpath`: the folder that holds the project; its checks run there. `limits`, `env`, `image`: of all checks of the
    repository. Values of `env` are not secret. `projects`: by name, beside what runs at the top or in `subpath`; the
    check `test` of the project `api` is named `api.test`. `git_facts`: whether checks get facts of the commit; `auto`:
    if the tree or the profile asks for them. `submodules`: URLs of remotes; their commits are laid out where a tree has
    them as submodules; none: their folders stay empty. `lfs`: checkouts hold the files of Git LFS, not their pointers.
    """

    profile: str = ""
    image: str = ""
    subpath: str = ""
    submodules: tuple[str, ...] = Field(default=(), max_length=200)
    lfs: bool = False
    git_facts: Literal["auto", "always", "never"] = "auto"
    limits: dict[str, int | float] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict, max_length=100)
    projects: dict[SimpleName, ChosenProject] = Field(default_factory=dict, max_length=32)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that hold projects, each once, without the top."""
        named = (self.subpath, *(project.subpath for project in self.projects.values()))
        return tuple(dict.fromkeys(folder for folder in named if folder))


class Repository(Model):
    """A registered remote with its cache clone. `remote_url` never holds credentials. `profile`: the one in use at the
    top of the default branch, or in `subpath`: the folder that was chosen, or that holds the only project.
    """

    id: RepoId
    remote_url: str
    host: Host
    hostname: str
    owner: str
    name: str
    default_branch: str
    profile: str
    subpath: str = ""
    created_at: datetime
    settings: ChosenSettings = ChosenSettings()
