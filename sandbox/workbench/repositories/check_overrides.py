"""Apply the operator's settings for one repository to its profile: packages, and overrides of checks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, Limits
from sandbox.profiles import Profile

if TYPE_CHECKING:
    from sandbox.config import CheckSettings, Settings


def apply_overrides(settings: Settings, repo_id: str, profile: Profile, *, strict: bool = True) -> Profile:
    """The profile with the settings of one repository. `strict`: settings for an unknown check are an error.

    Raises: `invalid_input`, which names the checks of the profile.
    """
    repository = settings.repositories.get(repo_id)
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
