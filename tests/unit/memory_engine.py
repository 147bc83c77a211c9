"""A container engine without containers: the protocol in memory, for tests of callers.

It imports no docker, so it also shows that a second engine can be written. A guest ends at once: its output is its
command line, its exit code 0.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from sandbox.engine import runtimes, user_maps
from sandbox.engine.build_context import write_build_context
from sandbox.engine.cgroups import Counters
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
from sandbox.engine.quarantine_store import QuarantineStore
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds


@dataclass
class MemoryEngine:
    """`images` and `containers` by digest and id, `image_of` the digest that a container uses.

    `hung`: ids of containers that cannot be removed, as if their runtime hung. `layers`: of its images, by digest.
    `store_name`: makes ids of images those of another store. `refused_tag`: it cannot set this one. `tag_prefix`: in
    front of the names of images that it saves, as Podman does.
    """

    quarantine: QuarantineStore
    facts: Mapping[str, Any] = field(default_factory=lambda: {"Runtimes": {"runc": {}}})
    images: dict[str, Image] = field(default_factory=dict)
    containers: dict[str, ContainerSummary] = field(default_factory=dict)
    image_of: dict[str, str] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    layers: dict[str, bytes] = field(default_factory=dict)
    store_name: str = ""
    refused_tag: str = ""
    tag_prefix: str = ""
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("memory://", "test"))
    version: str = "1"
    is_local: bool = True
    is_closed: bool = False

    # what it is

    def info(self) -> Mapping[str, Any]:
        return self.facts

    def list_runtimes(self) -> tuple[str, ...]:
        return runtimes.list_runtimes(self)

    def require_runtime(self, name: str) -> None:
        runtimes.require_runtime(self, name)

    def require_known_users(self, users: UserIds) -> Mapping[str, Any]:
        return user_maps.require_known_users(self, users)

    def can_mount(self, folder: Path, probe: ProbeContainer) -> bool:
        return probe.image in self.images and folder.is_dir()

    def close(self) -> None:
        self.is_closed = True

    # images

    def add_image(self, *tags: str, labels: Mapping[str, str] | None = None, has_volumes: bool = False) -> Image:
        """Add an image; its digest comes from its tags and labels."""
        layers = self._add_layers(repr(tags).encode())
        content = format_configuration(layers, labels or {})
        return self._keep(Image(self.id_of(content), tags, 1, "", labels or {}, (), "", has_volumes, layers=layers))

    def id_of(self, configuration: bytes) -> str:
        """The id of an image, as the classic image store counts it; another store has others."""
        return _digest(self.store_name.encode() + configuration)

    def _add_layers(self, *contents: bytes) -> tuple[str, ...]:
        self.layers |= {_digest(content): content for content in contents}
        return tuple(map(_digest, contents))

    def _keep(self, image: Image) -> Image:
        for other in [*self.images.values()]:
            self.images[other.digest] = replace(other, tags=tuple(tag for tag in other.tags if tag not in image.tags))
        self.images[image.digest] = image
        return image

    def inspect_image(self, reference: str) -> Image | None:
        return next((i for i in self.images.values() if reference == i.digest or reference in i.tags), None)

    def find_any_image_digest(self) -> str:
        return next(iter(self.images), "")

    def list_image_tags(self, *, label: str | None = None) -> tuple[str, ...]:
        return tuple(sorted(t for i in self.images.values() if label is None or label in i.labels for t in i.tags))

    def list_images_with_label(self, label: str) -> tuple[Image, ...]:
        return tuple(image for image in self.images.values() if image.tags and label in image.labels)

    def find_dangling_image_digests(self) -> frozenset[str]:
        return frozenset(image.digest for image in self.images.values() if not image.tags)

    def find_image_digests_in_use(self) -> frozenset[str]:
        return frozenset(self.image_of[name] for name in self.containers if name in self.image_of)

    def tag_image(self, digest: str, reference: str) -> None:
        if reference == self.refused_tag:
            raise SandboxError(ErrorCode.INTERNAL, f"The engine refused to tag the image '{reference}'")
        self._keep(replace(self.images[digest], tags=tuple(dict.fromkeys((*self.images[digest].tags, reference)))))

    def untag_image(self, reference: str) -> None:
        found = self.inspect_image(reference)
        if found is None:
            return
        rest = tuple(tag for tag in found.tags if reference not in {tag, found.digest})
        if rest:
            self.images[found.digest] = replace(found, tags=rest)
        elif found.digest in self.find_image_digests_in_use():
            raise SandboxError(ErrorCode.CONFLICT, f"The image '{reference}' is in use")
        else:
            del self.images[found.digest]

    def pull_image(self, reference: str, progress: Progress, deadline_s: float = PULL_DEADLINE_S) -> Image:
        raise SandboxError(ErrorCode.IMAGE_MISSING, f"The image '{reference}' cannot be pulled", details="no registry")

    def import_image(self, stream: IO[bytes], tag: str, labels: Mapping[str, str]) -> Image:
        layers = self._add_layers(stream.read())
        digest = self.id_of(format_configuration(layers, labels))
        return self._keep(Image(digest, (tag,), 1, "", labels, (), "", False, layers=layers))

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        context = io.BytesIO()
        write_build_context(context, request.folder, request.extra_files)
        context.seek(0)
        progress(f"built {request.tag}")
        return self.import_image(context, request.tag, request.labels)

    @contextmanager
    def save_images(self, references: Sequence[str]) -> Iterator[IO[bytes]]:
        """As Docker 20.10 does: each layer in a folder of its own."""
        files: dict[str, bytes] = {}
        listed = []
        for reference in references:
            image = next(image for image in self.images.values() if reference in image.tags)
            config = format_configuration(image.layers, image.labels)
            names = [f"{layer.removeprefix('sha256:')}/layer.tar" for layer in image.layers]
            files |= dict(zip(names, (self.layers[layer] for layer in image.layers), strict=True))
            name = f"{_digest(config).removeprefix('sha256:')}.json"
            files[name] = config
            listed.append({"Config": name, "RepoTags": [self.tag_prefix + reference], "Layers": names})
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, content in {**files, "manifest.json": json.dumps(listed).encode()}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        stream.seek(0)
        yield stream

    def plain_tag(self, tag: str) -> str:
        return tag.removeprefix(self.tag_prefix)

    def load_images(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        with tarfile.open(fileobj=io.BytesIO(b"".join(archive))) as opened:
            files = {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]  # plain files
        found = []
        for entry in json.loads(files["manifest.json"]):
            config = json.loads(files[entry["Config"]])
            layers = self._add_layers(*(files[name] for name in entry["Layers"]))
            digest = self.id_of(files[entry["Config"]])
            if digest not in self.images:
                labels = config["config"]["Labels"]
                self.images[digest] = Image(digest, (), 1, "", labels, (), "", False, layers=layers)
            found.append(digest)
        return tuple(found)

    # containers

    def add_container(self, name: str, labels: Mapping[str, str], *sources: Path, running: bool = True) -> str:
        """Add a container with directories of this host in it; its id is returned."""
        container_id = f"id-of-{name}"
        self.containers[container_id] = ContainerSummary(container_id, name, labels, running, tuple(map(str, sources)))
        return container_id

    def _create(self, name: str, options: Mapping[str, Any]) -> str:
        if options["Image"] not in self.images:
            raise SandboxError(ErrorCode.IMAGE_MISSING, f"The engine has no image {options['Image']}")
        sources = [Path(mount["Source"]) for mount in options["HostConfig"]["Mounts"]]
        container_id = self.add_container(name, options["Labels"], *sources)
        self.image_of[container_id] = options["Image"]
        return container_id

    def run_to_end(
        self,
        name: str,
        options: Mapping[str, Any],
        streams: Streams,
        *,
        deadline_s: float,
        stop_condition: StopCondition = never_stop,
    ) -> ContainerExit:
        try:
            self._create(name, options)
            streams.stdout(" ".join(options["Cmd"]).encode())
            return _exit(stop_condition)
        finally:
            self.remove_container(name)

    def run_supervised(
        self, name: str, options: Mapping[str, Any], check: SupervisedCheck, *, keep: bool
    ) -> ContainerExit:
        ending = None
        try:
            self._create(name, options)
            check.streams.stdout(" ".join(check.build_command(options["Env"]).argv).encode())
            ending = _exit(check.stop_condition)
            return ending
        finally:
            if not keep or ending is None or ending.stop_verdict is not None:
                self.remove_container(name)

    def start_supervised(self, name: str, options: Mapping[str, Any]) -> None:
        if not any(container.name == name for container in self.containers.values()):
            self._create(name, options)

    def choose_free_name(self, name: str) -> str:
        held = self.quarantine.names()
        return next(free for n in range(1, len(held) + 2) if (free := f"{name}-{n}" if n > 1 else name) not in held)

    def list_containers(self, labels: Mapping[str, str]) -> list[ContainerSummary]:
        held = self.quarantine.names()
        return [c for c in self.containers.values() if labels.items() <= c.labels.items() and c.name not in held]

    def remove_container(self, name: str) -> None:
        for found in [c for c in self.containers.values() if name in (c.id, c.name)]:
            if found.id in self.hung:
                self.quarantine.add(found.name, found.id, "it hangs")
            else:
                del self.containers[found.id]

    def remove_containers(self, labels: Mapping[str, str]) -> None:
        for found in self.list_containers(labels):
            self.remove_container(found.id)

    def retry_removal(self, name: str) -> None:
        if self.quarantine.names().get(name) in self.hung:
            raise SandboxError(ErrorCode.CONFLICT, "The engine still cannot end it")
        self.remove_container(name)
        self.quarantine.remove(name)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def format_configuration(layers: Sequence[str], labels: Mapping[str, str]) -> bytes:
    """The configuration of an image of this machine."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    root = {"type": "layers", "diff_ids": list(layers)}
    return json.dumps(
        {"architecture": architecture, "os": "linux", "rootfs": root, "config": {"Labels": dict(labels)}}
    ).encode()


def _exit(stop_condition: StopCondition) -> ContainerExit:
    stopped = stop_condition()
    code = 0 if stopped is None else None
    return ContainerExit(code, False, False, datetime.now(UTC), 0.0, Counters(), stop_verdict=stopped)
