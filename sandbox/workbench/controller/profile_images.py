"""The image that a profile's checks run in: the operator's settings take precedence over the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.profiles import Profile
from sandbox.workbench.controller.policies_in_force import Policies

if TYPE_CHECKING:
    from sandbox.config import Settings


def choose_image_reference(settings: Settings, profile: Profile) -> str:
    """The name, tag or digest, as written in the settings or the profile."""
    override = settings.profiles.get(profile.name)
    return override.image if override and override.image else profile.image


def list_image_references(settings: Settings, policies: Policies) -> frozenset[str]:
    """The references of all profiles of this home, with their services, and of settings for unknown profiles."""
    written = {override.image for override in settings.profiles.values() if override.image}
    of_services = {service.image for profile in policies.profiles.values() for service in profile.services}
    return frozenset(
        written
        | of_services
        | {choose_image_reference(settings, profile) for profile in policies.profiles.values() if not profile.problem}
    )
