"""What a repository suggests to run, and whether the operator trusts it."""

from __future__ import annotations

from sandbox.models.checks import Check
from sandbox.models.ids import RepoId, Sha256
from sandbox.models.model import Model
from sandbox.models.service_rules import ServiceRule


class Suggestion(Model):
    """The checks and services that a repository suggests at its default branch.

    `sha256`: of the file, None if there is none. `trusted`: they are used, for every base commit with a file of this
    hash. `profile`: it gets them.
    """

    repo_id: RepoId
    path: str
    sha256: Sha256 | None
    trusted: bool
    profile: str
    checks: tuple[Check, ...]
    services: tuple[ServiceRule, ...] = ()
