"""Create a container in Podman, and compare the configuration that its runtime got with the request.

Podman writes this configuration when it initialises a container: the process exists then, and its program is not
started. So the comparison comes before anything of the guest runs, as with Docker. docs/adr/0104
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.engine.docker_containers import missing_image_error
from sandbox.engine.mounts import invisible_files_error, names_unseen_source
from sandbox.engine.podman_request import build_request, read_seccomp
from sandbox.engine.products import is_rootless
from sandbox.engine.runtime_spec import find_spec_differences
from sandbox.engine.socket_api import SocketApi
from sandbox.engine.verify_created import difference_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.errors
else:  # loaded for an error (docs/adr/0080)
    docker = LazyModule("docker")

_API = "/v4.0.0/libpod"
_MAX_SPEC_BYTES = 8 * 1024**2


def create(engine: DockerApi, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """As `container.create_container`."""
    with translate_errors("create the container", on_missing=lambda details: missing_image_error(options, details)):
        rootless = _is_rootless(engine)
        try:
            container_id = _create(engine, name, options, rootless=rootless)
        except docker.errors.APIError as error:
            if names_unseen_source(str(error.explanation)):
                raise invisible_files_error(str(error.explanation)) from error
            raise
    with translate_errors("initialise the container"):
        _send(engine, "POST", f"/containers/{container_id}/init")
    with translate_errors("inspect the new container"):
        inspected: dict[str, Any] = engine.api.inspect_container(container_id)
    if wrong := compare(engine, options, inspected, rootless):
        raise difference_error(wrong, "\n".join(wrong))
    return inspected


def compare(
    engine: DockerApi, options: Mapping[str, Any], inspected: Mapping[str, Any], known_rootless: bool | None = None
) -> tuple[str, ...]:
    """List what differs from the request in a container that is initialised. `known_rootless`: what the engine said of
    itself for the same container; None: it is asked.
    """
    container_id = quote(str(inspected["Id"]), safe="")
    with translate_errors("inspect the container"):
        seen = _send(engine, "GET", f"/containers/{container_id}/json")
        rootless = _is_rootless(engine) if known_rootless is None else known_rootless
    host = options["HostConfig"]
    facts = {
        "Image": (f"sha256:{str(seen.get('Image')).removeprefix('sha256:')}", options["Image"]),
        "OCIRuntime": (seen.get("OCIRuntime"), host["Runtime"]),
        "HostConfig.NetworkMode": ((seen.get("HostConfig") or {}).get("NetworkMode"), host["NetworkMode"]),
        "HostConfig.AutoRemove": ((seen.get("HostConfig") or {}).get("AutoRemove"), False),
        "HostConfig.Privileged": ((seen.get("HostConfig") or {}).get("Privileged"), False),
        "HostConfig.LogConfig": (((seen.get("HostConfig") or {}).get("LogConfig") or {}).get("Type"), "none"),
    }
    wrong = [name for name, (found, wanted) in facts.items() if found != wanted]
    spec = _read_spec(str(seen.get("OCIConfigPath") or ""))
    return (*wrong, *find_spec_differences(options, spec, rootless=rootless))


def can_create(engine: DockerApi, name: str, options: Mapping[str, Any]) -> bool:
    """Create a container, unless the engine does not find the source of a mount. The caller removes it."""
    mounts = [
        {"destination": m["Target"], "type": "bind", "source": m["Source"], "options": ["bind", "ro"]}
        for m in options["HostConfig"]["Mounts"]
    ]
    request = {
        "name": name,
        "image": options["Image"],
        "command": options["Cmd"],
        "labels": options["Labels"],
        "netns": {"nsmode": "none"},
        "mounts": mounts,
    }
    with translate_errors("try a mount"):
        try:
            _send(engine, "POST", "/containers/create", request)
        except docker.errors.APIError as error:
            if names_unseen_source(str(error.explanation)):
                return False
            raise
    return True


def choose_build_group(group: str) -> str:
    """A group for one build below `group`: Podman takes the name as that of the step's own group, whatever the driver,
    and removes it with the step (seen: 4.3.1, 5.8.6). '' for a slice: that is not the path of a group.
    """
    return f"{group}/sandbox-build-{secrets.token_hex(8)}" if group.startswith("/") else ""


def _create(engine: DockerApi, name: str, options: Mapping[str, Any], *, rootless: bool) -> str:
    with _seccomp_file(read_seccomp(options)) as file:
        request = build_request(name, options, file, rootless=rootless)
        return str(_send(engine, "POST", "/containers/create", request)["Id"])


def _is_rootless(engine: DockerApi) -> bool:
    """Of `DockerApi.info` without what that adds, which takes another request. On Debian an answer costs Podman a
    quarter of a second, in which it asks for the packages of its programs: the engine of a container is asked once.
    """
    return is_rootless(engine.api.info())


@contextmanager
def _seccomp_file(profile: str) -> Iterator[str]:
    """Podman takes the path of a file, and reads it while it creates the container."""
    with tempfile.NamedTemporaryFile("w", prefix="sandbox-seccomp-", suffix=".json", encoding="utf-8") as file:
        file.write(profile)
        file.flush()
        yield file.name


def _read_spec(path: str) -> dict[str, Any]:
    """Raises: `policy_violation`: what cannot be compared is not started."""
    try:
        with Path(path).open("rb") as file:
            found = json.loads(file.read(_MAX_SPEC_BYTES))
    except (OSError, ValueError) as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "The configuration that Podman gave its runtime cannot be read, so the container is not started",
            details=f"{path}: {error}",
            hint="The controller needs the rights of the user who runs Podman, on the same host.",
        ) from error
    return cast("dict[str, Any]", found if isinstance(found, dict) else {})


def _send(engine: DockerApi, method: str, target: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Podman's own API, which has the errors of Docker's. It is at a unix socket (products.py)."""
    api = cast("SocketApi", engine.api)
    content = b"" if body is None else json.dumps(body).encode()
    answer = api.require_success(api.request(method, _API + target, content, versioned=False))
    return cast("dict[str, Any]", answer.json()) if answer.content else {}
