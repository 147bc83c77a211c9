"""Image and runtime of a profile's guests. They are resolved once for each request: a tag can move at any time."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.images import resolve_image
from sandbox.profiles import Profile
from sandbox.workbench.controller.profile_images import choose_image_reference
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services


@dataclass(frozen=True)
class GuestSetup:
    """Image and runtime of a profile's guests."""

    image_digest: str
    runtime: str


def resolve_guest_setup(services: Services, profile: Profile) -> GuestSetup:
    """The image and runtime in which a profile's checks run at this time; asks the engine.

    Raises: `image_missing`, `engine_unavailable`, `policy_violation`; as `sandbox.images.resolve`.
    """
    return GuestSetup(
        resolve_image(services.image_build_context, choose_image_reference(services.settings, profile)),
        choose_runtime(services, profile.name),
    )
