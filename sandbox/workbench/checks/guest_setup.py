"""Image and runtime of a profile's guests. They are resolved once for each request: a tag can move at any time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox import images
from sandbox.checks.compiler_cache import NO_COMPILER_CACHE, CompilerCacheUse
from sandbox.checks.execute import GuestLayer
from sandbox.context.advice import describe_versions
from sandbox.engine.image_types import Image
from sandbox.engine.posture import OWN_KERNEL_RUNTIMES
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import SUPERVISOR, ImageBuildContext, find_usable_image, has_recipe
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import ServiceRule, ServiceSetup
from sandbox.profiles import Profile
from sandbox.workbench.controller.guest_accounts import find_first_ids
from sandbox.workbench.controller.guest_memory import count_host_bytes
from sandbox.workbench.controller.profile_images import (
    choose_image_reference,
    choose_packages,
    is_image_overridden,
)
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.repository_settings import AddedFiles, choose_added_files

if TYPE_CHECKING:
    from sandbox.workbench.checks import shared_images
    from sandbox.workbench.controller import image_builds
else:  # for an image that the engine does not have
    image_builds = LazyModule("sandbox.workbench.controller.image_builds")
    shared_images = LazyModule("sandbox.workbench.checks.shared_images")

_NO_ADDED_FILES = AddedFiles()
_NAMED_PACKAGES = 5


@dataclass(frozen=True)
class GuestSetup:
    """Image and runtime of a profile's guests, its services, and the layers of dependencies of one tree.

    `added`: what rooms hold in addition to the files of their tree.
    `first_ids`: uid and gid on this host of the guests' 0, if guests have the controller's user.
    `supervisor_digest`: of the image of PID 1, if it has just been looked up.
    `compiler_cache`: how one room uses it.
    `without_layers`: why a layer that the tree asks for is absent, as a clause; '' if none is.
    `from_elsewhere`: packages that the layers lack, because a manifest takes them from elsewhere than a registry.
    `absent`: packages that they lack, because the registry has no version that fits.
    `unfit`: packages that they lack, because no versions with them fit together.
    `unbuilt`: archives that they lack, because they cannot be built.
    `unread`: files, or parts of them, that are larger or more than is read, so that packages may be missing.
    `unlocked`: packages that they have though the lock file has other ones, so that it has no hash of them.
    """

    image_digest: str
    runtime: str
    layers: tuple[GuestLayer, ...] = ()
    services: tuple[ServiceSetup, ...] = ()
    added: AddedFiles = _NO_ADDED_FILES
    without_layers: str = ""
    from_elsewhere: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unlocked: tuple[str, ...] = ()
    supervisor_digest: str = ""
    first_ids: tuple[int, int] = (0, 0)
    compiler_cache: CompilerCacheUse = NO_COMPILER_CACHE

    @property
    def left_out(self) -> dict[str, tuple[str, ...]]:
        """The packages that the layers lack, by the reason."""
        names_by_reason = {
            "a manifest takes it from elsewhere than a registry": self.from_elsewhere,
            "the registry has no version that fits": self.absent,
            "no versions of the development packages fit together": self.unfit,
            "it cannot be built": self.unbuilt,
        }
        return {f"left out, for {reason}": names for reason, names in names_by_reason.items() if names}

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """What the tree asks for and its guests do not have, and why: a clause for each reason."""
        clauses = (f"{reason}: {shorten_names(names)}" for reason, names in self.left_out.items())
        unread = (
            [f"not read, for it is larger or more than is read: {shorten_names(self.unread)}"] if self.unread else []
        )
        return (*filter(None, [self.without_layers]), *clauses, *unread)


def shorten_names(names: tuple[str, ...]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED_PACKAGES
    return ", ".join(names[:_NAMED_PACKAGES]) + (f" and {more} more" if more > 0 else "")


Building = Callable[[str], None]
"""Called with each line of the build of an image."""


def resolve_guest_setup(services: Services, profile: Profile, building: Building | None = None) -> GuestSetup:
    """The image and runtime in which a profile's checks run at this time; asks the engine.

    `building`: build an image that has a recipe and that the engine does not have, unless the setting `images.build`
    is `never`. Raises: `image_missing`, also if no image has a Python that the project allows; `engine_unavailable`,
    `policy_violation`; as `sandbox.images.resolve_image`, and with `building` also as `sandbox.images.build`.
    """
    _require_version(services, profile)
    name, packages = choose_image_reference(services.settings, profile), choose_packages(services.settings, profile)
    try:
        digest = _resolve_or_build(services, name, building).digest
    except SandboxError as error:
        if explained := _explain_missing_image(services, profile, name, error):
            raise explained from error
        raise
    supervisor = ""
    if building is not None and not services.supervisor_paths:  # the first check of this controller
        supervisor = _resolve_or_build(services, SUPERVISOR, building).digest
    if packages:
        digest = _derive(services, digest, name, packages, building)
    runtime = choose_runtime(services, profile.name)
    companions = _resolve_services(services, profile, runtime, building)
    return GuestSetup(
        digest,
        runtime,
        services=companions,
        added=choose_added_files(services, profile.submodule_urls, lfs=profile.lfs),
        supervisor_digest=supervisor,
        first_ids=(0, 0) if services.policies.pristine_owner else find_first_ids(services, None),
    )


def _require_version(services: Services, profile: Profile) -> None:
    if not profile.lacks_version or is_image_overridden(services.settings, profile):
        return
    known = {row.image: row.version for row in profile.version_images}
    said = "requires-python" if profile.pythons else "go.mod says go"
    raise SandboxError(
        ErrorCode.IMAGE_MISSING,
        f"No image has a {profile.language} that the project allows: {said} {profile.requires_version}",
        details=f"Versions of the images: {describe_versions(known)}.",
        hint="Choose an image that you have: sandbox repo set REPOSITORY --image NAME "
        f"(docs/images.md, Newer {profile.language}).",
        reason=f"no_{profile.language.lower()}",
        data={f"requires_{profile.language.lower()}": profile.requires_version, "versions": known},
    )


def _explain_missing_image(services: Services, profile: Profile, name: str, error: SandboxError) -> SandboxError | None:
    """What the profile says about its image, if that is what is missing, and no recipe is there; else None."""
    is_own = error.code is ErrorCode.IMAGE_MISSING and name == profile.image and not has_recipe(services.home, name)
    if not is_own or not profile.image_help:
        return None
    return SandboxError(
        ErrorCode.IMAGE_MISSING,
        f"There is no image '{name}' for a {profile.name} project: it is one that you make",
        details=profile.image_help,
        hint=f"Write $SANDBOX_HOME/images/{name}/Dockerfile and recipe.toml, then: sandbox images build {name}. "
        "Or choose an image that you have: sandbox repo set REPOSITORY --image TAG (docs/dependencies.md, Java).",
    )


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
    building(f"Adding Debian packages to the image '{name}', once: {', '.join(packages)}")
    with image_builds.open_build(services) as site_of_build:
        images.build_derived(site_of_build, name, packages, building)
    return images.resolve_derived(site, base_digest, packages, name)


def _resolve_services(
    services: Services, profile: Profile, runtime: str, building: Building | None
) -> tuple[ServiceSetup, ...]:
    if profile.services and runtime in OWN_KERNEL_RUNTIMES:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The profile '{profile.name}' has services, which the runtime {runtime} cannot run",
            details="Its guests have a network of their own each, so a check would not find its service.",
            hint=f'Set profiles.{profile.name}.runtime = "runc", or remove the services (docs/services.md).',
        )
    return tuple(_resolve_service(services, rule, building) for rule in profile.services)


def _resolve_service(services: Services, rule: ServiceRule, building: Building | None) -> ServiceSetup:
    image = _resolve_or_build(services, rule.image, building)
    argv = rule.argv or image.command
    if not argv:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The image '{rule.image}' of the service '{rule.name}' has no command of its own",
            hint="Give the service an `argv` (docs/services.md).",
        )
    bound = services.policies.container.container.memory_of_all_guests(count_host_bytes())
    limits = rule.limits.within_host(os.cpu_count() or 1, bound)
    return ServiceSetup(rule=rule.model_copy(update={"limits": limits}), image_digest=image.digest, argv=argv)


def _resolve_or_build(services: Services, reference: str, building: Building | None) -> Image:
    site = services.image_build_context
    try:
        return find_usable_image(site, reference)
    except SandboxError as error:
        missing = error.code is ErrorCode.IMAGE_MISSING and has_recipe(services.home, reference)
        if building is None or not missing:
            raise
        services.require_engine()  # no image is built in an engine that is refused
        if not _take_shared(services, reference, building):
            if services.settings.images.build == "never":
                raise
            building(f"The image '{reference}' is missing: it is built once, with those that it needs")
            with image_builds.open_build(services) as site_of_build:
                images.build_all(site_of_build, (reference, SUPERVISOR), building)
    return find_usable_image(site, reference)


def _take_shared(services: Services, reference: str, building: Building) -> bool:
    """Take the shared image, or a shared PID 1: that comes with what it was built on, which this image may be, or
    start from.
    """
    site = services.image_build_context
    if shared_images.take_image(services, reference, building):
        return True
    if reference == SUPERVISOR or _is_usable(site, SUPERVISOR):
        return False
    return shared_images.take_image(services, SUPERVISOR, building) and _is_usable(site, reference)


def _is_usable(site: ImageBuildContext, reference: str) -> bool:
    try:
        find_usable_image(site, reference)
    except SandboxError as error:
        if error.code is not ErrorCode.IMAGE_MISSING:
            raise
        return False
    return True
