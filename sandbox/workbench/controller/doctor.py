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


def doctor(parts: Parts) -> tuple[Probe, ...]:
    """All lines of the report, in reading order. Never raises."""
    engine, found = _engine_and_images(parts)
    git = parts.settings.git.executable
    probes = capabilities.doctor(
        engine,
        parts.settings,
        parts.home.root,
        policy=_container_policy(parts),
        images=found,
        git_version=process.git_version(parts.home.root, git),
    )
    return (
        *probes,
        *sight_probes(parts, engine),
        *capabilities.profile_probes(parts.profiles.values()),
        *_bad_policies(parts),
        capabilities.trust_probe(user_config.trusts_every_directory(parts.environ, git)),
    )


def _container_policy(parts: Parts) -> ContainerPolicy:
    """The policy in force; the shipped one if the operator's file is invalid: no check runs, other lines need one."""
    try:
        return parts.policy.container
    except SandboxError:
        return parts.shipped_policy.container


def _bad_policies(parts: Parts) -> tuple[Probe, ...]:
    """A line for each of the operator's files that is invalid."""
    loads: tuple[Callable[[], object], ...] = (
        lambda: parts.policy,
        lambda: parts.commit_policy,
        lambda: parts.paths,
        lambda: parts.approval_policy,
    )
    found = []
    for load in loads:
        try:
            load()
        except SandboxError as error:
            value = f"{error.brief}\n{error.details}"
            found.append(Probe(name="policy file", level=ProbeLevel.FAIL, value=value, hint=error.hint))
    return tuple(found)


def _engine_and_images(parts: Parts) -> tuple[Engine | SandboxError, tuple[ImageInfo, ...]]:
    try:
        return parts.engine, list_images(parts)
    except SandboxError as error:
        return error, ()


def list_images(parts: Parts) -> tuple[ImageInfo, ...]:
    """The images that this home has recipes for, and whether the engine has them."""
    return images.list_images(parts.image_site, image_references(parts))
