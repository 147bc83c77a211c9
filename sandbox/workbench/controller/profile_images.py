"""The image that a profile's checks run in: the operator's settings take precedence over the profile."""

from __future__ import annotations

from sandbox.profiles import Profile
from sandbox.workbench.controller.services import Services


def choose_image_reference(services: Services, profile: Profile) -> str:
    """The name, tag or digest, as written in the settings or the profile."""
    override = services.settings.profiles.get(profile.name)
    return override.image if override and override.image else profile.image


def list_image_references(services: Services) -> frozenset[str]:
    """The references of all profiles of this home, and of settings for profiles that do not exist."""
    written = {settings.image for settings in services.settings.profiles.values() if settings.image}
    return frozenset(
        written
        | {
            choose_image_reference(services, profile)
            for profile in services.policies.profiles.values()
            if not profile.problem
        }
    )
