"""Image and runtime of a profile's guests. They are resolved once for each request: a tag can move at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox import images
from sandbox.checks.execute import GuestLayer
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import SUPERVISOR, has_recipe, resolve_image
from sandbox.profiles import Profile
from sandbox.workbench.controller.profile_images import choose_image_reference, choose_packages
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services


@dataclass(frozen=True)
class GuestSetup:
    """Image and runtime of a profile's guests, and the layers of dependencies of one tree."""

    image_digest: str
    runtime: str
    layers: tuple[GuestLayer, ...] = ()


Building = Callable[[str], None]
"""Called with each line of the build of an image."""


def resolve_guest_setup(services: Services, profile: Profile, building: Building | None = None) -> GuestSetup:
    """The image and runtime in which a profile's checks run at this time; asks the engine.

    `building`: build an image that has a recipe and that the engine does not have, unless the setting `images.build`
    is `never`. Raises: `image_missing`, `engine_unavailable`, `policy_violation`; as `sandbox.images.resolve_image`,
    and with `building` also as `sandbox.images.build`.
    """
    if building is not None and not services.supervisor_paths:  # the first check of this controller
        _resolve_or_build(services, SUPERVISOR, building)
    name, packages = choose_image_reference(services.settings, profile), choose_packages(services.settings, profile)
    digest = _resolve_or_build(services, name, building)
    if packages:
        digest = _derive(services, digest, name, packages, building)
    return GuestSetup(digest, choose_runtime(services, profile.name))


def _derive(
    services: Services, base_digest: str, name: str, packages: tuple[str, ...], building: Building | None
) -> str:
    """The digest of the image with the packages; built at its first use, as images of a recipe are."""
    site = services.image_build_context
    try:
        return images.resolve_derived(site, base_digest, packages, name)
    except SandboxError as error:
        missing = error.code is ErrorCode.IMAGE_MISSING
        if building is None or not missing or services.settings.images.build == "never":
            raise
    building(f"Adding {len(packages)} Debian packages to the image '{name}', once")
    images.build_derived(site, name, packages, building)
    return images.resolve_derived(site, base_digest, packages, name)


def _resolve_or_build(services: Services, reference: str, building: Building | None) -> str:
    site = services.image_build_context
    try:
        return resolve_image(site, reference)
    except SandboxError as error:
        missing = error.code is ErrorCode.IMAGE_MISSING and has_recipe(services.home, reference)
        if building is None or not missing or services.settings.images.build == "never":
            raise
    building(f"The image '{reference}' is missing; building it takes some minutes, once")
    images.build(site, reference, building)
    return resolve_image(site, reference)
