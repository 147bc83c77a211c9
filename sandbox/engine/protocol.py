"""The protocol of a container engine: everything that the rooms outside of this package use of one.

A second engine implements `ContainerEngine`; `sandbox.engine.connection.DockerEngine` does it for Docker. Failures are
`SandboxError`s: `engine_unavailable` and `timeout` when the engine does not answer, `internal` when it refuses, and the
codes that a method names. `sandbox.engine.unhardened` is not part of it: its containers are made for Docker alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

from sandbox.engine.container_types import (
    ContainerExit,
    ContainerSummary,
    ProbeContainer,
    StopCondition,
    Streams,
    SupervisedCheck,
    never_stop,
)
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.image_types import PULL_DEADLINE_S, Image, ImageBuild, Progress
from sandbox.policy.container import UserIds


class EngineInformation(Protocol):
    """Which engine it is, and what it can do."""

    @property
    def version(self) -> str:
        """Its version, for display only."""
        ...

    @property
    def endpoint(self) -> Endpoint:
        """Its address, and the setting that it comes from."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether its control groups and paths are those of this host."""
        ...

    def info(self) -> Mapping[str, Any]:
        """Read its capabilities, in the format of Docker's `GET /info`."""
        ...

    def list_runtimes(self) -> tuple[str, ...]:
        """List the names of its runtimes, sorted."""
        ...

    def require_runtime(self, name: str) -> None:
        """Raises: `engine_unavailable` for a runtime that it does not have."""
        ...

    def require_known_users(self, users: UserIds) -> Mapping[str, Any]:
        """Return `info()`. Raises: `engine_unavailable` if guests with these ids of the host cannot run there."""
        ...

    def can_mount(self, folder: Path, probe: ProbeContainer) -> bool:
        """Whether it can mount a directory of this host. Removes the container `probe`."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class ImageStore(Protocol):
    """The local images of an engine. A reference is a tag or a digest."""

    def inspect_image(self, reference: str) -> Image | None:
        """Find a local image, or None. Raises: `invalid_input` for an invalid name."""
        ...

    def find_any_image_digest(self) -> str:
        """Return the digest of any local image; empty when there is none."""
        ...

    def list_image_tags(self, *, label: str | None = None) -> tuple[str, ...]:
        """List the tags of all local images, or of those with a label; sorted."""
        ...

    def list_images_with_label(self, label: str) -> tuple[Image, ...]:
        """Inspect every local image that has a tag and this label."""
        ...

    def find_dangling_image_digests(self) -> frozenset[str]:
        """List the digests of images without a tag on which no other image was built."""
        ...

    def find_image_digests_in_use(self) -> frozenset[str]:
        """List the digests of images used by any container of the engine."""
        ...

    def tag_image(self, digest: str, reference: str) -> None:
        """Add a tag to an image, or move it there from another image."""
        ...

    def untag_image(self, reference: str) -> None:
        """Remove a tag; the image goes with its last tag. Raises: `conflict` when a container uses the image."""
        ...

    def pull_image(self, reference: str, progress: Progress, deadline_s: float = PULL_DEADLINE_S) -> Image:
        """Pull one tag. Raises: `image_missing` (no such image), `network_error` (no registry), `timeout`."""
        ...

    def import_image(self, stream: IO[bytes], tag: str, labels: Mapping[str, str]) -> Image:
        """Import a root file system's tar stream as a one-layer image."""
        ...

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        """Build an image folder. Raises: `network_error` or `internal` with the last lines, `timeout`."""
        ...

    def save_images(self, references: Sequence[str]) -> AbstractContextManager[IO[bytes]]:
        """Open a tar stream, in the format of `docker save`, with these images.

        The engine may name them otherwise in it: `plain_tag` gives the name by which they were asked for.
        """
        ...

    def plain_tag(self, tag: str) -> str:
        """Return the name of an image as Docker has it: other products put a registry in front of it."""
        ...

    def load_images(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        """Load such a stream of images without tags; return the ids that the engine names, perhaps not all."""
        ...


class GuestRunner(Protocol):
    """The containers of an engine. Options are those of `create_options`; the created container must match them."""

    def run_to_end(
        self,
        name: str,
        options: Mapping[str, Any],
        streams: Streams,
        *,
        deadline_s: float,
        stop_condition: StopCondition = never_stop,
    ) -> ContainerExit:
        """Run one fresh container to its end and remove it. Raises: `policy_violation`, `image_missing`."""
        ...

    def run_supervised(
        self, name: str, options: Mapping[str, Any], check: SupervisedCheck, *, keep: bool
    ) -> ContainerExit:
        """Run one check in a new or reused container with our PID 1. Raises: `policy_violation`, `image_missing`."""
        ...

    def start_supervised(self, name: str, options: Mapping[str, Any]) -> None:
        """Start a container with our PID 1 for later checks, or verify the one that is there. Raises: as above."""
        ...

    def choose_free_name(self, name: str) -> str:
        """Return the name, or the first `NAME-<number>` that no quarantined container has."""
        ...

    def list_containers(self, labels: Mapping[str, str]) -> list[ContainerSummary]:
        """List the containers with all these labels, running or not, except quarantined ones."""
        ...

    def remove_container(self, name: str) -> None:
        """Kill and delete a container; a missing one is fine. Quarantines it when the engine does not answer."""
        ...

    def remove_containers(self, labels: Mapping[str, str]) -> None:
        """Kill and delete every container with all these labels."""
        ...

    def retry_removal(self, name: str) -> None:
        """Try again to remove a quarantined container. Raises: `conflict` when the engine still cannot."""
        ...


class ContainerEngine(EngineInformation, ImageStore, GuestRunner, Protocol):
    """All of an engine."""
