"""What the protocol of an engine takes and returns about images. Plain types: no engine, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from sandbox.lazy_dataclass import dataclass

PULL_DEADLINE_S = 600.0
BUILD_DEADLINE_S = 3600.0

Progress = Callable[[str], None]
"""Receives one plain line at a time: at most 500 characters, no control characters."""


@dataclass(frozen=True)
class Image:
    """One image. `digest` is its id, `sha256:<hex>`: the only name that can never refer to another image.

    `layers`: the digests of its layers' uncompressed tar files, the lowest first: the same in every image store.
    """

    digest: str
    tags: tuple[str, ...]
    size_bytes: int
    created_at: str
    labels: Mapping[str, str]
    env: tuple[str, ...]
    user: str
    has_volumes: bool
    command: tuple[str, ...] = ()  # its entrypoint and the default arguments
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageBuild:
    """One image build. `extra_files` are added to the folder's files in the context; `args` are build arguments.

    `cgroup_parent`: the control group in which its steps run (guest_group.py); empty: the engine's own.
    """

    folder: Path
    tag: str
    args: Mapping[str, str]
    labels: Mapping[str, str]
    extra_files: Mapping[str, bytes] = field(default_factory=dict)
    network: str = "host"
    no_cache: bool = False
    deadline_s: float = BUILD_DEADLINE_S
    cgroup_parent: str = ""
