"""Connect to a Docker engine, which implements `ContainerEngine` (protocol.py)."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from sandbox.engine.container_types import (
    ContainerExit,
    ContainerSummary,
    ProbeContainer,
    StopCondition,
    Streams,
    SupervisedCheck,
    never_stop,
)
from sandbox.engine.docker_api import SLOW_HINT, UNIX, DockerApi, is_answer_timeout
from sandbox.engine.endpoint import Endpoint, candidate_endpoints, describe_address_fault
from sandbox.engine.image_types import PULL_DEADLINE_S, Image, ImageBuild, Progress
from sandbox.engine.products import UNSUPPORTED_HINT, Product, find_product, find_unsupported_product
from sandbox.engine.quarantine_store import QuarantineStore
from sandbox.engine.socket_api import SocketApi
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.shipped_files import is_checkout

if TYPE_CHECKING:
    import docker
    import docker.errors
    import docker.tls
    import requests

    from sandbox.engine import (
        container,
        dialects,
        image_transfer,
        images,
        quarantine,
        runtimes,
        supervised,
        user_maps,
        visibility,
    )
    from sandbox.policy.container import UserIds
else:  # loaded for an error, and for what `socket_api` has not; the modules at their first use (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")
    container = LazyModule("sandbox.engine.container")
    dialects = LazyModule("sandbox.engine.dialects")
    image_transfer = LazyModule("sandbox.engine.image_transfer")
    images = LazyModule("sandbox.engine.images")
    quarantine = LazyModule("sandbox.engine.quarantine")
    runtimes = LazyModule("sandbox.engine.runtimes")
    supervised = LazyModule("sandbox.engine.supervised")
    user_maps = LazyModule("sandbox.engine.user_maps")
    visibility = LazyModule("sandbox.engine.visibility")

CONNECT_TIMEOUT_S = 1.5
"""How long an address may take to accept a connection. After that the answer may take up to `engine.timeout_s`."""
_NETWORK = ("tcp://", "http://", "https://")
_KNOWN_REASONS = (
    "No such file or directory", "Permission denied", "Connection refused", "Failed to resolve", "timed out",
    "No route to host", "Network is unreachable", "certificate verify failed", "Connection reset by peer",
)  # fmt: skip
_UNKNOWN_REASON = "it did not answer as an engine does"
_PERMISSION_HINT = (
    "You have no permission for the engine's socket: join the group that owns it (often `docker`) and log in again, or "
    "run this command as root."
)


class _UnsupportedProductError(Exception):
    """Its text is the name of the product that answered."""


@dataclass(frozen=True)
class DockerEngine(DockerApi):
    """A Docker engine. Each method is documented where the function of this package is that does its work."""

    def list_runtimes(self) -> tuple[str, ...]:
        return runtimes.list_runtimes(self)

    def require_runtime(self, name: str) -> None:
        runtimes.require_runtime(self, name, is_given=self.product is Product.DOCKER)

    def require_known_users(self, users: UserIds) -> Mapping[str, Any]:
        return user_maps.require_known_users(self, users)

    def can_mount(self, folder: Path, probe: ProbeContainer) -> bool:
        return visibility.can_mount(self, folder, probe)

    def inspect_image(self, reference: str) -> Image | None:
        return images.inspect(self, reference)

    def find_any_image_digest(self) -> str:
        return images.find_any_digest(self)

    def list_image_tags(self, *, label: str | None = None) -> tuple[str, ...]:
        return images.list_tags(self, label=label)

    def list_images_with_label(self, label: str) -> tuple[Image, ...]:
        return images.list_with_label(self, label)

    def find_dangling_image_digests(self) -> frozenset[str]:
        return images.find_dangling_digests(self)

    def find_image_digests_in_use(self) -> frozenset[str]:
        return images.find_digests_in_use(self)

    def tag_image(self, digest: str, reference: str) -> None:
        images.tag(self, digest, reference)

    def untag_image(self, reference: str) -> None:
        images.untag(self, reference)

    def pull_image(self, reference: str, progress: Progress, deadline_s: float = PULL_DEADLINE_S) -> Image:
        return images.pull(self, reference, progress, deadline_s)

    def import_image(self, stream: IO[bytes], tag: str, labels: Mapping[str, str]) -> Image:
        return images.import_tar(self, stream, tag, labels)

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        return images.build(self, request, progress)

    def save_images(self, references: Sequence[str]) -> AbstractContextManager[IO[bytes]]:
        return image_transfer.save(self, references)

    def plain_tag(self, tag: str) -> str:
        return dialects.find_dialect(self).plain_tag(tag)

    def load_images(self, archive: Iterable[bytes]) -> tuple[str, ...]:
        return image_transfer.load(self, archive)

    def run_to_end(
        self,
        name: str,
        options: Mapping[str, Any],
        streams: Streams,
        *,
        deadline_s: float,
        stop_condition: StopCondition = never_stop,
    ) -> ContainerExit:
        return container.run_to_end(self, name, options, streams, deadline_s=deadline_s, stop_condition=stop_condition)

    def run_supervised(
        self, name: str, options: Mapping[str, Any], check: SupervisedCheck, *, keep: bool
    ) -> ContainerExit:
        return supervised.run_supervised(self, name, options, check, keep=keep)

    def start_supervised(self, name: str, options: Mapping[str, Any]) -> None:
        supervised.start_supervised(self, name, options)

    def choose_free_name(self, name: str) -> str:
        return quarantine.choose_free_name(self, name)

    def list_containers(self, labels: Mapping[str, str]) -> list[ContainerSummary]:
        return container.list_containers(self, labels)

    def remove_container(self, name: str) -> None:
        container.remove_container(self, name)

    def remove_containers(self, labels: Mapping[str, str]) -> None:
        container.remove_containers(self, labels)

    def retry_removal(self, name: str) -> None:
        quarantine.retry_removal(self, name)


def connect(
    configured: str, environ: Mapping[str, str], timeout_s: float, quarantine_store: QuarantineStore | None = None
) -> DockerEngine:
    """Connect to the first engine that listens, and wait up to `timeout_s` for its answer.

    Raises: `engine_unavailable`, with the endpoints that were tried, also when only products answer that are not
    supported; they are named; and for an address that is not valid. Without a listener this takes two seconds at most.
    An engine that listens and does not answer takes `timeout_s`, and no other endpoint is tried: the next command would
    find the same engine again.
    """
    tried = []
    unsupported = ""
    endpoints = candidate_endpoints(configured, environ)
    for endpoint in endpoints:
        if fault := describe_address_fault(endpoint.url):
            raise _malformed_address_error(endpoint, fault)
        try:
            engine = _connect(endpoint, timeout_s, CONNECT_TIMEOUT_S / len(endpoints))
            return replace(engine, quarantine=quarantine_store)
        except _UnsupportedProductError as error:
            unsupported = unsupported or str(error)
            tried.append(f"{endpoint.url} ({endpoint.source}): {error} is not supported")
        except (docker.errors.DockerException, requests.RequestException, OSError, ValueError, KeyError) as error:
            if is_answer_timeout(error):
                raise _slow_engine_error(endpoint, timeout_s, error) from error
            tried.append(f"{endpoint.url} ({endpoint.source}): {_short_reason(error)}")
    brief, hint = "No container engine answers", _choose_hint(tried)
    if unsupported:
        brief, hint = f"The container engine is {unsupported}, which is not supported", UNSUPPORTED_HINT
    raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, brief, details="\n".join(tried), hint=hint)


def _choose_hint(tried: Iterable[str]) -> str:
    return _PERMISSION_HINT if any(said.endswith("Permission denied") for said in tried) else how_to_start_engine()


def how_to_start_engine() -> str:
    """Explain how to start an engine when none listens."""
    make = ", `make engine` in this checkout installs and starts one" if is_checkout() else ""
    start = "`systemctl start docker`, with Podman `systemctl start podman.socket`"
    return f"Start it (as root: {start}{make}), or point engine.host / DOCKER_HOST at a running one."


def _malformed_address_error(endpoint: Endpoint, fault: str) -> SandboxError:
    return SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        "The address of the container engine is not valid",
        details=f"{endpoint.url} ({endpoint.source}): {fault}",
        hint="An address is unix:///path/of/the/socket or tcp://host:port; without any, the default socket is used.",
    )


def _slow_engine_error(endpoint: Endpoint, timeout_s: float, error: Exception) -> SandboxError:
    return SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"The container engine did not answer within {timeout_s:g} s",
        details=f"{endpoint.url} ({endpoint.source}): it accepted the connection. {error}",
        hint=SLOW_HINT,
    )


def _require_listener(url: str, connect_s: float) -> None:
    """Raises: OSError without a listener on a unix socket; docker 7.2 would leak the socket of a failed connect."""
    if url.startswith(UNIX):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(connect_s)
            probe.connect("/" + url.removeprefix(UNIX).lstrip("/"))


def _connect(endpoint: Endpoint, timeout_s: float, connect_s: float) -> DockerEngine:
    _require_listener(endpoint.url, connect_s)
    tls = None
    if endpoint.tls_folder is not None:
        folder = endpoint.tls_folder
        tls = docker.tls.TLSConfig(
            client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
            ca_cert=str(folder / "ca.pem"),
            verify=True,
        )
    api: docker.APIClient
    if endpoint.url.startswith(UNIX):
        api = cast("docker.APIClient", SocketApi(endpoint.url, timeout_s))
    else:
        # The stubs say int; requests takes fractions of a second, and a pair: connect timeout, read timeout.
        patience: Any = (connect_s, timeout_s) if endpoint.url.startswith(_NETWORK) else timeout_s
        api = docker.APIClient(base_url=endpoint.url, tls=tls or False, timeout=patience)
    try:
        found = api.version(api_version=False)
        if unsupported := find_unsupported_product(found, is_local=endpoint.url.startswith(UNIX)):
            raise _UnsupportedProductError(unsupported)
        product = find_product(found)
        version = str(found["Version"])
    except BaseException:
        api.close()
        raise
    api.timeout = timeout_s  # type: ignore[assignment]
    name = version if product is Product.DOCKER else f"{product} {version}"
    return DockerEngine(api, endpoint, name, product=product)


def _short_reason(error: Exception) -> str:
    text = str(error)
    for known in _KNOWN_REASONS:
        if known.lower() in text.lower():
            return known
    return _UNKNOWN_REASON
