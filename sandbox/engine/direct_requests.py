"""Inspect one object of the engine that may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.engine.docker_api import DockerApi
from sandbox.engine.socket_api import SocketApi
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.errors
else:  # loaded for an error (docs/adr/0080)
    docker = LazyModule("docker")


def find_object(engine: DockerApi, kind: str, name: str) -> dict[str, Any] | None:
    """Inspect one of the `containers` or `images`; None if there is none. Raises: as the SDK.

    On the engine's own socket, a missing object loads no SDK.
    """
    api: Any = engine.api
    if isinstance(api, SocketApi):
        return api.find(kind, name)
    try:
        found: dict[str, Any] = (api.inspect_image if kind == "images" else api.inspect_container)(name)
    except docker.errors.NotFound:
        return None
    return found
