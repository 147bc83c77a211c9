"""Image and runtime of a profile's guests. They are resolved once for each request: a tag can move at any time."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.images import resolve
from sandbox.profiles import Profile
from sandbox.workbench.controller.profile_images import image_reference
from sandbox.workbench.controller.runtimes import runtime_of
from sandbox.workbench.controller.services import Parts


@dataclass(frozen=True)
class GuestSetup:
    """Image and runtime of a profile's guests."""

    image_digest: str
    runtime: str


def resolve_guest_setup(services: Parts, profile: Profile) -> GuestSetup:
    """The image and runtime in which a profile's checks run at this time; asks the engine.

    Raises: `image_missing`, `engine_unavailable`, `policy_violation`; as `sandbox.images.resolve`.
    """
    return GuestSetup(resolve(services.image_site, image_reference(services, profile)), runtime_of(services, profile.name))
