"""Add to a profile what a repository suggests: checks, packages, services and projects."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, ChosenProject
from sandbox.models.checks import ChosenLimits, Environment
from sandbox.models.ids import SimpleName
from sandbox.models.service_rules import ServiceRule
from sandbox.models.suggestions import SuggestedPart
from sandbox.policy import untrusted_toml
from sandbox.policy.paths import parse_repo_path
from sandbox.profiles import HINT, MAX_PROJECTS, SUGGESTIONS, Packages, Profile, ProfileModel, require_plain_ids

_JOB_CHARS = 27  # of an id to which a hash is added


class _SuggestedImage(ProfileModel):
    """A repository may ask for packages, but not choose the image."""

    packages: Packages = ()


class _SuggestedProject(ProfileModel):
    """A project of the repository. Its image is that of its profile: the repository does not choose one."""

    name: SimpleName
    subpath: str
    profile: SimpleName | Literal[""] = ""
    limits: ChosenLimits = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict, max_length=100)

    @field_validator("subpath")
    @classmethod
    def _validate_folder(cls, value: str) -> str:
        folder = value.strip("/").removeprefix("./")
        try:
            return str(parse_repo_path(folder)) if folder not in {"", "."} else ""
        except SandboxError as error:
            raise ValueError(error.brief) from error


class _SuggestedProjects(BaseModel):
    """The projects of a suggestion file; all other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    project: tuple[_SuggestedProject, ...] = Field(default=(), max_length=MAX_PROJECTS)


class _SuggestionFile(ProfileModel):
    checks: tuple[Check, ...] = Field(default=(), alias="check")
    image: _SuggestedImage = _SuggestedImage()
    services: tuple[ServiceRule, ...] = Field(default=(), alias="service")
    projects: tuple[_SuggestedProject, ...] = Field(default=(), alias="project", max_length=MAX_PROJECTS)

    @field_validator("projects")
    @classmethod
    def _require_different_names(cls, value: tuple[_SuggestedProject, ...]) -> tuple[_SuggestedProject, ...]:
        names = [project.name for project in value]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two projects are named '{doubled[0]}'")
        return value


def add_suggested_file(profile: Profile, content: bytes, workspace: PurePosixPath) -> Profile:
    """Add the checks, packages and services of `SUGGESTIONS` to the profile. The checks may require the profile's, the
    services may be for them.

    Raises: `invalid_input` for invalid content, or for a check id or service that the profile has already.
    """
    try:
        added = _parse_suggestions(content, str(workspace))
        return _extend(profile, added.checks, added.image.packages, added.services)
    except (ValueError, tomllib.TOMLDecodeError) as error:  # ValidationError is a ValueError
        raise _unusable_suggestion(error) from error


def read_suggested_projects(content: bytes) -> dict[str, ChosenProject]:
    """The projects of `SUGGESTIONS`, by name. Raises: `invalid_input` for invalid content."""
    try:
        added = _parse_suggestions(content).projects
        return {project.name: ChosenProject(**project.model_dump(exclude={"name"})) for project in added}
    except (ValueError, tomllib.TOMLDecodeError) as error:
        raise _unusable_suggestion(error) from error


def list_suggested_folders(content: bytes) -> tuple[str, ...]:
    """The folders of the projects in `SUGGESTIONS`, without the top; none if they cannot be used. The file is not
    trusted: all else in it is left unread.
    """
    try:
        projects = _SuggestedProjects.model_validate(untrusted_toml.loads(content.decode())).project
    except ValueError:
        return ()
    return tuple(dict.fromkeys(project.subpath for project in projects if project.subpath))


def _parse_suggestions(content: bytes, workspace: str = "") -> _SuggestionFile:
    """Raises: ValueError, TOMLDecodeError."""
    return _SuggestionFile.model_validate(untrusted_toml.loads(content.decode().replace("<worktree>", workspace)))


def _unusable_suggestion(error: ValueError) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The checks suggested in {SUGGESTIONS} cannot be used",
        details=describe_errors(error),
        hint=HINT,
    )


def add_suggested_parts(profile: Profile, parts: Iterable[SuggestedPart]) -> Profile:
    """Add what trusted parts of other files suggest: packages, checks, and variables that a check does not set. Where
    parts have the same ids of checks, those of the later ones get a short hash.

    Raises: `invalid_input` for a check id that the profile has already.
    """
    env: dict[str, str] = {}
    for part in _rename_equal_ids(tuple(parts)):
        try:
            profile = _extend(profile, part.checks, part.packages)
        except ValueError as error:
            brief = f"The checks suggested in {part.path} cannot be used"
            raise SandboxError(ErrorCode.INVALID_INPUT, brief, details=describe_errors(error), hint=HINT) from error
        env |= part.env
    checks = (check.model_copy(update={"env": {**env, **check.env}}) for check in profile.checks)
    return profile.model_copy(update={"checks": tuple(checks)}) if env else profile


def _rename_equal_ids(parts: Sequence[SuggestedPart]) -> Iterator[SuggestedPart]:
    """Two files can give the same ids, such as `ci.yml` and `ci.yaml`. One keeps its own: of the file higher in the
    tree, or with the usual name. The ids of one job are renamed together.
    """
    taken: set[str] = set()
    new: dict[str, dict[str, str]] = {}
    for part in sorted(parts, key=lambda part: (part.path.count("/"), part.path.endswith(".yaml"), part.path)):
        ids = [check.id for check in part.checks]
        jobs = {job for name in ids if (job := name.rpartition("-")[0]) and name in taken}
        renamed = {name: _rename(name, part.path) for name in ids if name.rpartition("-")[0] in jobs}
        taken |= {renamed.get(name, name) for name in ids}
        new.setdefault(part.path, {}).update(renamed)
    for part in parts:
        names = new[part.path]
        checks = [
            check.model_copy(
                update={
                    "id": names.get(check.id, check.id),
                    "requires": tuple(names.get(name, name) for name in check.requires),
                }
            )
            for check in part.checks
        ]
        yield part.model_copy(update={"checks": tuple(checks)}) if names else part


def _rename(name: str, path: str) -> str:
    """`ci-test-1` becomes `ci-test-HASH-1`, and is no longer than before."""
    job, _, number = name.rpartition("-")
    digest = hashlib.sha256(f"{path}\0{job}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{job[:_JOB_CHARS].rstrip('-')}-{digest}-{number}"


def _extend(
    profile: Profile, checks: Sequence[Check], packages: Sequence[str], services: Sequence[ServiceRule] = ()
) -> Profile:
    """Raises: ValueError for a check id or service that the profile has already, for checks that cannot be ordered, and
    for those that launch an application.
    """
    require_plain_ids(checks)
    if launches := [check.id for check in checks if check.launch is not None]:
        raise ValueError(f"the check '{launches[0]}' has 'launch': only a profile launches an application")
    ids = [c.id for c in (*profile.checks, *checks)]
    if taken := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"the profile '{profile.name}' already has {', '.join(taken)}")
    extended = profile.model_copy(
        update={
            "checks": (*profile.checks, *checks),
            "packages": tuple(dict.fromkeys((*profile.packages, *packages))),
            "services": (*profile.services, *services),
        }
    )
    extended.order_checks(ids)
    extended.require_usable_services()
    return extended
