"""Which image a profile's checks run in: the operator's settings go before the profile."""

from __future__ import annotations

from sandbox.profiles import Profile
from sandbox.workbench.controller.services import Parts


def image_reference(parts: Parts, profile: Profile) -> str:
    """The name, tag or digest, as it was written."""
    override = parts.settings.profiles.get(profile.name)
    return override.image if override and override.image else profile.image


def image_references(parts: Parts) -> frozenset[str]:
    """Those of all profiles of this home, also of settings whose profile is not there."""
    written = {settings.image for settings in parts.settings.profiles.values() if settings.image}
    return frozenset(
        written | {image_reference(parts, profile) for profile in parts.profiles.values() if not profile.problem}
    )
