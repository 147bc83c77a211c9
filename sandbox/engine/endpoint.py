"""Find the engine the way the docker command does: `engine.host`, DOCKER_HOST, DOCKER_CONTEXT, the current context, the
default sockets. (The SDK's `from_env` knows only DOCKER_HOST.)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Endpoint:
    """Address of an engine, and the setting it comes from."""

    url: str
    source: str
    tls_folder: Path | None = None

    @property
    def socket_path(self) -> str:
        """Path of a unix socket; '' for any other address."""
        scheme, _, path = self.url.partition("://")
        return "/" + path.lstrip("/") if scheme == "unix" else ""


def candidate_endpoints(configured: str, environ: Mapping[str, str]) -> list[Endpoint]:
    """List the endpoints to try, best first. An explicit setting is the only one: there is no silent fallback."""
    if configured:
        return [Endpoint(configured, "engine.host")]
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker")
    if environ.get("DOCKER_HOST"):
        tls = Path(environ.get("DOCKER_CERT_PATH") or folder) if environ.get("DOCKER_TLS_VERIFY") else None
        return [Endpoint(environ["DOCKER_HOST"], "DOCKER_HOST", tls)]
    context = environ.get("DOCKER_CONTEXT") or _current_context(folder)
    if context and context != "default":
        return [_from_context(folder, context)]
    return _default_sockets(environ)


def describe_address_fault(url: str) -> str:
    """Why this cannot be the address of an engine; '' if it can."""
    scheme, has_scheme, rest = url.rpartition("://")
    if scheme in ("unix", "http+unix"):
        return "" if rest.strip("/") else "the path of the socket is missing"
    if has_scheme and scheme not in ("tcp", "http", "https"):
        return f"{scheme}:// is not supported"
    try:
        parsed = urlsplit(f"tcp://{rest}")
        if not parsed.hostname:
            return "the host is missing"
        return "" if parsed.port or scheme in ("http", "https") else "the port is missing"
    except ValueError:
        return "the host or the port is malformed"


def _current_context(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_bytes()).get("currentContext", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _from_context(folder: Path, name: str) -> Endpoint:
    digest = hashlib.sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "contexts" / "meta" / digest / "meta.json").read_bytes())
        url = str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The docker context '{name}' cannot be read",
            details=str(error),
            hint="`docker context ls` lists contexts; unset DOCKER_CONTEXT to use the default socket.",
        ) from error
    tls = folder / "contexts" / "tls" / digest / "docker"
    return Endpoint(url, f"context '{name}'", tls if tls.is_dir() else None)


def _default_sockets(environ: Mapping[str, str]) -> list[Endpoint]:
    """Those that are there and may be used, else all. Podman's only where Docker has none: a Docker that is stopped
    keeps its socket, and another engine, without its images, must not take its place.
    """
    docker, podman = [Path("/var/run/docker.sock")], [Path("/run/podman/podman.sock")]
    if environ.get("XDG_RUNTIME_DIR"):  # rootless
        docker.append(Path(environ["XDG_RUNTIME_DIR"]) / "docker.sock")
        podman.append(Path(environ["XDG_RUNTIME_DIR"]) / "podman" / "podman.sock")
    docker.append(Path(environ.get("HOME", "/")) / ".docker" / "run" / "docker.sock")  # desktop
    usable = [path for path in docker if path.is_socket() and os.access(path, os.W_OK)]
    if not usable and not any(path.is_socket() for path in docker):
        usable = [path for path in podman if path.is_socket() and os.access(path, os.W_OK)]
    return [Endpoint(f"unix://{path}", "default socket") for path in usable or docker]
