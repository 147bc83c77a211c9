"""The image that a profile's checks run in: the operator's settings take precedence over the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.profiles import Profile
from sandbox.store.records import list_repositories
from sandbox.workbench.controller.policies_in_force import Policies

if TYPE_CHECKING:
    from sandbox.config import Settings
    from sandbox.store.home import Home


def is_image_overridden(settings: Settings, profile: Profile) -> bool:
    """Whether the operator chose another image than the profile's."""
    return choose_image_reference(settings, profile) != profile.image


def choose_image_reference(settings: Settings, profile: Profile) -> str:
    """The name, tag or digest, as written in the repository's settings, the settings or the profile."""
    if profile.repository_image:
        return profile.repository_image
    override = settings.profiles.get(profile.name)
    return override.image if override and override.image else profile.image


def choose_packages(settings: Settings, profile: Profile) -> tuple[str, ...]:
    """The Debian packages that the image gets beside what it has, sorted, each once."""
    override = settings.profiles.get(profile.name)
    return tuple(sorted({*profile.packages, *(override.packages if override else ())}))


def describe_image_choice(settings: Settings, profile: Profile) -> str:
    """Image and packages in one text for people."""
    packages = choose_packages(settings, profile)
    return choose_image_reference(settings, profile) + (f" with {', '.join(packages)}" if packages else "")


def list_image_references(settings: Settings, policies: Policies, home: Home) -> frozenset[str]:
    """The references of all profiles and repositories of this home, and of settings for profiles that do not exist."""
    written = {override.image for override in settings.profiles.values() if override.image}
    for chosen in (repository.settings for repository in list_repositories(home)):
        written |= {chosen.image, *(project.image for project in chosen.projects.values())} - {""}
    written |= {project.image for projects in policies.projects.values() for project in projects if project.image}
    written |= {row.image for profile in policies.profiles.values() for row in profile.version_images}
    written |= {service.image for profile in policies.profiles.values() for service in profile.services}
    return frozenset(
        written
        | {choose_image_reference(settings, profile) for profile in policies.profiles.values() if not profile.problem}
    )
