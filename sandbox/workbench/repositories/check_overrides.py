"""Apply the operator's settings to a profile: a factor of its deadlines; for one repository, packages and overrides of
checks. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, Limits
from sandbox.models.checks import MAX_TIMEOUT_S
from sandbox.profiles import Profile, project_of

if TYPE_CHECKING:
    from sandbox.config import CheckSettings, Settings


def apply_overrides(settings: Settings, repo_id: str, profile: Profile, *, strict: bool = True) -> Profile:
    """The profile with the settings of one repository. `strict`: settings for an unknown check are an error.

    Raises: `invalid_input`, which names the checks of the profile.
    """
    repository = settings.repositories.get(repo_id)
    profile = _extend_deadlines(settings, profile)
    if repository is None:
        return profile
    profile = _add_packages(profile, repository.packages)
    known = [check.id for check in profile.checks]
    if strict and (unknown := sorted(repository.checks.keys() - set(known))):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Configuration key 'repositories.{repo_id}.checks.{unknown[0]}' names an unknown check",
            details=f"The profile '{profile.name}' has {', '.join(known) or 'no checks'}",
            hint=f"`sandbox check list {repo_id}` shows a repository's checks.",
        )
    changed = tuple(_apply_override(check, repository.checks.get(check.id)) for check in profile.checks)
    return profile.model_copy(update={"checks": changed})


def _extend_deadlines(settings: Settings, profile: Profile) -> Profile:
    """Multiply the deadlines of each part by the factor of its profile."""
    names = {part.project_name: part.name for part in (profile, *profile.project_parts)}
    factors = {
        project: settings.profiles[name].timeout_factor for project, name in names.items() if name in settings.profiles
    }
    if set(factors.values()) <= {1.0}:
        return profile
    checks = tuple(_multiply_deadline(check, factors.get(project_of(check.id), 1.0)) for check in profile.checks)
    return profile.model_copy(update={"checks": checks})


def _multiply_deadline(check: Check, factor: float) -> Check:
    timeout_s = min(check.timeout_s * factor, MAX_TIMEOUT_S)
    return check.model_copy(update={"timeout_s": timeout_s})


def _add_packages(profile: Profile, packages: Sequence[str]) -> Profile:
    """Every part has an image of its own, so each gets them."""
    parts = tuple(_add_packages(part, packages) for part in profile.project_parts)
    return profile.model_copy(update={"packages": (*profile.packages, *packages), "project_parts": parts})


def _apply_override(check: Check, settings: CheckSettings | None) -> Check:
    if settings is None:
        return check
    limits = Limits.model_validate({**dict(check.limits), **settings.limits})
    update = {"limits": limits, "timeout_s": settings.timeout_s or check.timeout_s, "jobs": settings.jobs or check.jobs}
    return check.model_copy(update=update)
