"""What this host offers and lacks: collect facts of the engine, the images and git for `sandbox.capabilities`."""

from __future__ import annotations

from collections.abc import Callable

from sandbox import capabilities, images
from sandbox.engine.connection import Engine
from sandbox.errors import SandboxError
from sandbox.git import process, user_config
from sandbox.models import ImageInfo, Probe, ProbeLevel
from sandbox.policy.container import ContainerPolicy
from sandbox.workbench.controller.home_visibility import sight_probes
from sandbox.workbench.controller.profile_images import image_references
from sandbox.workbench.controller.services import Parts


def doctor(services: Parts) -> tuple[Probe, ...]:
    """All lines of the report, in reading order. Never raises."""
    engine, found = _engine_and_images(services)
    git = services.settings.git.executable
    probes = capabilities.doctor(
        engine,
        services.settings,
        services.home.root,
        policy=_container_policy(services),
        images=found,
        git_version=process.git_version(services.home.root, git),
    )
    return (
        *probes,
        *sight_probes(services, engine),
        *capabilities.profile_probes(services.profiles.values()),
        *_bad_policies(services),
        capabilities.trust_probe(user_config.trusts_every_directory(services.environ, git)),
    )


def _container_policy(services: Parts) -> ContainerPolicy:
    """The policy in force; the shipped one if the operator's file is invalid: no check runs, other lines need one."""
    try:
        return services.policy.container
    except SandboxError:
        return services.shipped_policy.container


def _bad_policies(services: Parts) -> tuple[Probe, ...]:
    """A line for each of the operator's files that is invalid."""
    loads: tuple[Callable[[], object], ...] = (
        lambda: services.policy,
        lambda: services.commit_policy,
        lambda: services.paths,
        lambda: services.approval_policy,
    )
    found = []
    for load in loads:
        try:
            load()
        except SandboxError as error:
            value = f"{error.brief}\n{error.details}"
            found.append(Probe(name="policy file", level=ProbeLevel.FAIL, value=value, hint=error.hint))
    return tuple(found)


def _engine_and_images(services: Parts) -> tuple[Engine | SandboxError, tuple[ImageInfo, ...]]:
    try:
        return services.engine, list_images(services)
    except SandboxError as error:
        return error, ()


def list_images(services: Parts) -> tuple[ImageInfo, ...]:
    """The images that this home has recipes for, and whether the engine has them."""
    return images.list_images(services.image_site, image_references(services))
