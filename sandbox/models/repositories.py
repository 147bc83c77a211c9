"""Repositories, and the results of registering and removing one."""

from __future__ import annotations

from datetime import datetime

from sandbox.models.context import Context
from sandbox.models.ids import RepoId
from sandbox.models.model import Model
from sandbox.models.words import Host


class Repository(Model):
    """A registered remote with its cache clone. `remote_url` never holds credentials."""

    id: RepoId
    remote_url: str
    host: Host
    hostname: str
    owner: str
    name: str
    default_branch: str
    profile: str
    created_at: datetime


class CloneResult(Model):
    """The answer of `repo clone`."""

    repository: Repository
    context: Context


class RemoveResult(Model):
    """The answer of `repo remove`. `lost`: describes the work that existed only here and was deleted."""

    repo_id: RepoId
    remote_url: str | None
    lost: tuple[str, ...]
