"""What a repository suggests for its checks. It is used only after the operator has trusted it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sandbox.models.checks import Check
from sandbox.models.ids import PackageName, RepoId, Sha256, SimpleName
from sandbox.models.model import Model
from sandbox.models.repositories import ChosenProject
from sandbox.models.service_rules import ServiceRule


class SuggestionKind(StrEnum):
    """What a part of a file suggests. `ENVIRONMENT`: variables for all checks of the profile."""

    PACKAGES = "packages"
    ENVIRONMENT = "environment"
    CHECKS = "checks"


class SuggestedPart(Model):
    """What one file of others (CI, devcontainer, Debian) suggests of one kind. `sha256`: of what is shown here, so that
    a change of the file that suggests the same keeps the trust.
    """

    path: str
    kind: SuggestionKind
    sha256: Sha256
    trusted: bool = False
    packages: tuple[PackageName, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    checks: tuple[Check, ...] = ()


class SuggestionNote(Model):
    """What a file asks for and cannot get by trust. `text`: of the repository. `reason`: ours."""

    path: str
    text: str
    reason: str


class Suggestion(Model):
    """What a repository suggests at its default branch. `path`: the file of suggested checks. `sha256`: of that file,
    None if there is none. `trusted`: what the file suggests is used, for every base commit with a file of this hash.

    `profile`: it gets the checks and packages. `parts`: what other files suggest, each trusted on its own. `notes`:
    what these files ask for that cannot be used.
    """

    repo_id: RepoId
    path: str
    sha256: Sha256 | None
    trusted: bool
    profile: str
    checks: tuple[Check, ...]
    packages: tuple[PackageName, ...] = ()
    services: tuple[ServiceRule, ...] = ()
    projects: dict[SimpleName, ChosenProject] = Field(default_factory=dict)
    parts: tuple[SuggestedPart, ...] = ()
    notes: tuple[SuggestionNote, ...] = ()
