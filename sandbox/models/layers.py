"""Dependency layers: read-only directories of packages that checks get, addressed by what they were made from."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import Field

from sandbox.models.dependencies import RefusedEntry
from sandbox.models.egress import EgressAccess
from sandbox.models.ids import ObjectId, TaskId
from sandbox.models.model import Model

LayerEcosystem: TypeAlias = Literal["python", "node", "rust", "go", "perl"]


class LayerRule(Model):
    """`[[layer]]` of a profile: how the dependencies of its repositories are found, fetched and installed.

    `ecosystem` chooses the steps. `needs`: requirements of the profile's own checks, added to those of the project.
    `folder`: where the manifests are, '' for the top.
    """

    ecosystem: LayerEcosystem
    needs: tuple[str, ...] = ()
    folder: str = ""


class LayerPackage(Model):
    """One package of a layer. `sha256`: of its archive, in hex."""

    name: str
    version: str
    file: str
    sha256: str


Resource: TypeAlias = Literal["memory", "processes", "disk"]
"""What a build can run short of."""

RESOURCES: tuple[Resource, ...] = ("memory", "processes", "disk")


class Shortage(Model):
    """What the build of a layer ran short of while a package of it failed. `tries`: how many builds ended like that;
    `tried_at`: the last one.
    """

    of: tuple[Resource, ...]
    tries: int = 1
    tried_at: datetime


class Layer(Model):
    """One layer of this home. `key`: sha256, in hex, over packages with hashes, image, platform and runtime.

    `folder`: its name on disk. `bytes`, `files`: of its content. `left_out`: archives that could not be built.
    `without_extension`: archives whose optional extension did not compile; they are used without it. `shortage`: why
    another build may bring what is missing; then the key also covers what that is. A record without one has no such
    field: older controllers of the home refuse records with fields that they do not know, and delete the tree.
    """

    key: str
    ecosystem: LayerEcosystem
    packages: tuple[LayerPackage, ...]
    left_out: tuple[str, ...] = ()
    without_extension: tuple[str, ...] = ()
    shortage: Shortage | None = Field(default=None, exclude_if=lambda value: value is None)
    image_digest: str
    platform: str
    runtime: str
    folder: str
    bytes: int
    files: int
    built_at: datetime
    wall_time_s: float


class Resolution(Model):
    """Which layer a set of manifests led to, and how. It is reused until the manifests, the image or the registries
    change, so the same manifests give the same packages.

    `selection`: which requirements were used, after which constraints. `accesses`: connections of the fetch.
    """

    request: str
    layer: str
    selection: str
    refused: tuple[RefusedEntry, ...]
    accesses: tuple[EgressAccess, ...]
    resolved_at: datetime


class LayerUser(Model):
    """A repository, or one of its open tasks, with checks that ran with a layer. `used_at`: when they last did."""

    repo_id: str
    task_id: TaskId | None = None
    used_at: datetime


class LayerDetails(Model):
    """The answer of `layers show`. `used_at`: its last use by a check. `users`: the one that used it last first."""

    layer: Layer
    resolutions: tuple[Resolution, ...]
    used_at: datetime
    users: tuple[LayerUser, ...] = ()


class LayerSummary(Model):
    """One row of `layers list`. `repositories`: ids of those whose checks ran with it, the last first. `tasks`: how
    many of their open tasks did.
    """

    key: str
    ecosystem: str
    packages: int
    bytes: int
    built_at: datetime
    used_at: datetime
    repositories: tuple[str, ...] = ()
    tasks: int = 0


class PreparedLayers(Model):
    """The answer of `layers build`: the layers of a commit; none if its manifests ask for no package.

    `refused`: entries of the manifests that are not used.
    """

    commit: ObjectId
    layers: tuple[LayerSummary, ...]
    refused: tuple[RefusedEntry, ...] = ()


class RemovedLayers(Model):
    """The answer of `layers remove` and `layers gc`: keys of removed layers, and of those that checks use."""

    removed: tuple[str, ...]
    in_use: tuple[str, ...] = ()
    freed_bytes: int
