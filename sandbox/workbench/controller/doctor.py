"""What this host offers and lacks: collect facts of the engine, the images and git for `sandbox.capabilities`."""

from __future__ import annotations

from collections.abc import Callable

from sandbox import capabilities, images
from sandbox.engine.guest_group import GuestGroup
from sandbox.engine.protocol import ContainerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import process, user_config
from sandbox.models import ImageInfo, Probe, ProbeLevel
from sandbox.policy.container import ContainerPolicy
from sandbox.workbench.controller.configured_files import probe_configured_files
from sandbox.workbench.controller.guest_memory import find_guest_group
from sandbox.workbench.controller.home_visibility import process_probes, visibility_probes
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.profile_images import list_image_references
from sandbox.workbench.controller.registry_probes import probe_registries
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.walls import find_wall_facts, wall_probes

_OF_THE_ENGINE = {ErrorCode.ENGINE_UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.NETWORK_ERROR}


def doctor(services: Services) -> tuple[Probe, ...]:
    """All lines of the report, in reading order. Never raises."""
    engine, found, state = _connect_and_list_images(services)
    git = services.settings.git.executable
    probes = capabilities.probe_host(
        engine,
        services.settings,
        services.home.root,
        policy=_container_policy(services.policies),
        images=found,
        git_version=process.git_version(services.home.root, git),
    )
    return (
        *probes,
        *state,
        *process_probes(engine),
        *visibility_probes(services, engine),
        capabilities.guest_memory_probe(_find_group(services)),
        *wall_probes(find_wall_facts(services.settings, services.policies)),
        *capabilities.profile_probes(services.policies.profiles.values()),
        *_policy_problem_probes(services.policies),
        *probe_configured_files(services),
        *probe_registries(services),
        capabilities.safe_directory_probe(user_config.trusts_every_directory(services.environ, git)),
    )


def _container_policy(policies: Policies) -> ContainerPolicy:
    """The policy in force; the shipped one if the operator's file is invalid: no check runs, other lines need one."""
    try:
        return policies.container.container
    except SandboxError:
        return policies.shipped_container.container


def _find_group(services: Services) -> GuestGroup | SandboxError:
    try:
        return find_guest_group(services)
    except SandboxError as error:
        return error


def _policy_problem_probes(policies: Policies) -> tuple[Probe, ...]:
    """A line for each of the operator's files that is invalid."""
    loads: tuple[Callable[[], object], ...] = (
        lambda: policies.container,
        lambda: policies.commits,
        lambda: policies.paths,
        lambda: policies.approvals,
    )
    found = []
    for load in loads:
        try:
            load()
        except SandboxError as error:
            value = f"{error.brief}\n{error.details}"
            found.append(Probe(name="policy file", level=ProbeLevel.FAIL, value=value, hint=error.hint))
    return tuple(found)


def _connect_and_list_images(
    services: Services,
) -> tuple[ContainerEngine | SandboxError, tuple[ImageInfo, ...], tuple[Probe, ...]]:
    """The engine, the images, and a line if the home's own state cannot be read: that is no fault of the engine."""
    try:
        engine = services.engine
    except SandboxError as error:
        return error, (), ()
    try:
        return engine, _list_recipe_images(services), ()
    except SandboxError as error:
        if error.code in _OF_THE_ENGINE:
            return error, (), ()
        value = f"{error.brief}\n{error.details}"
        return engine, (), (Probe(name="home state", level=ProbeLevel.FAIL, value=value, hint=error.hint),)


def list_images(services: Services) -> tuple[ImageInfo, ...]:
    """The images that this home has recipes for, and whether the engine has them; and all with packages."""
    return (*_list_recipe_images(services), *images.list_derived(services.image_build_context))


def remove_image(services: Services, name: str) -> ImageInfo:
    """Remove an image with packages of a profile. Raises: as `sandbox.images.remove_derived`."""
    return images.remove_derived(services.image_build_context, name)


def _list_recipe_images(services: Services) -> tuple[ImageInfo, ...]:
    return images.list_images(
        services.image_build_context, list_image_references(services.settings, services.policies, services.home)
    )
