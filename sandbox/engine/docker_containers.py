"""Create a container in a Docker engine, and compare what `inspect` says of it with the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.engine.mounts import invisible_files_error, names_unseen_source
from sandbox.engine.verify_created import find_differences, require_same_options
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.errors
    import requests
else:  # loaded for an error (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")


def create(engine: DockerApi, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """As `container.create_container`."""
    with translate_errors("create the container", on_missing=lambda details: missing_image_error(options, details)):
        try:
            created: Any = engine.api.create_container_from_config(dict(options), name=name)  # type: ignore[no-untyped-call]  # stub
        except docker.errors.APIError as error:
            if _has_unseen_source(error):
                raise invisible_files_error(str(error.explanation)) from error
            raise
    with translate_errors("inspect the new container"):
        inspected: dict[str, Any] = engine.api.inspect_container(str(created["Id"]))
    require_same_options(options, inspected)
    return inspected


def compare(_engine: DockerApi, options: Mapping[str, Any], inspected: Mapping[str, Any]) -> tuple[str, ...]:
    """List what differs from the request in a container that exists."""
    return find_differences(options, inspected)


def can_create(engine: DockerApi, name: str, options: Mapping[str, Any]) -> bool:
    """Create a container, unless the engine does not find the source of a mount. The caller removes it."""
    with translate_errors("try a mount"):
        try:
            engine.api.create_container_from_config(dict(options), name=name)  # type: ignore[no-untyped-call]  # stub
        except docker.errors.APIError as error:
            if _has_unseen_source(error):
                return False
            raise
    return True


def _has_unseen_source(error: docker.errors.APIError) -> bool:
    return error.status_code == requests.codes.bad_request and names_unseen_source(str(error.explanation))


def missing_image_error(options: Mapping[str, Any], details: str) -> SandboxError:
    """The image of these options is not in the engine."""
    return SandboxError(ErrorCode.IMAGE_MISSING, f"The engine has no image {options['Image'][:19]}", details=details)
