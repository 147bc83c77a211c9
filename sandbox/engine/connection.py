"""One connection to an engine, and the translation of its errors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import docker
import docker.errors
import docker.tls
import requests
import urllib3.exceptions

from sandbox.config import is_checkout
from sandbox.engine.endpoint import Endpoint, candidates
from sandbox.engine.quarantine_store import Ward
from sandbox.errors import ErrorCode, SandboxError

CONNECT_S = 1.5
"""How long an address may take to accept a connection. After that the answer may take up to `engine.timeout_s`."""
_UNIX = "unix://"
_LATE = (TimeoutError, BlockingIOError)
"""Signs of a busy engine on a unix socket. Without a listener the connection fails at once; a full queue blocks it."""
_NETWORK = ("tcp://", "http://", "https://")
_RIGHTS_HINT = (
    "You have no permission for the engine's socket: join the group that owns it (often `docker`) and log in again, or "
    "run this command as root."
)


_SLOW_HINT = (
    "The engine is stuck or very busy: wait, or restart it (`systemctl restart docker`) if no other container runs in "
    "it. engine.timeout_s sets how long the sandbox waits."
)


@dataclass(frozen=True)
class Engine:
    """A reachable engine. `api` is for this package only. `is_local`: its cgroups and paths are those of this host.

    `quarantine`: records containers that the engine cannot end; without it such a container is an error.
    """

    api: docker.APIClient
    endpoint: Endpoint
    version: str
    ward: Ward | None = None

    @property
    def local(self) -> bool:
        """Whether the engine shares this host's file system."""
        return self.endpoint.url.startswith(_UNIX)

    def info(self) -> dict[str, Any]:
        """Read `GET /info`, for capability probes."""
        with translated("read the engine's information"):
            info: dict[str, Any] = self.api.info()
        return info

    def close(self) -> None:
        """Close the sockets."""
        self.api.close()


def connect(configured: str, environ: Mapping[str, str], timeout_s: float) -> Engine:
    """Connect to the first engine that listens, and wait up to `timeout_s` for its answer.

    Raises: `engine_unavailable`, with the endpoints that were tried. Without a listener this takes two seconds at most.
    An engine that listens and does not answer takes `timeout_s`, and no other endpoint is tried: the next command would
    find the same engine again.
    """
    tried = []
    endpoints = candidates(configured, environ)
    for endpoint in endpoints:
        try:
            return _connect(endpoint, timeout_s, CONNECT_S / len(endpoints))
        except (docker.errors.DockerException, requests.RequestException, OSError, ValueError, KeyError) as error:
            if _is_late(error):
                raise _slow(endpoint, timeout_s, error) from error
            tried.append(f"{endpoint.url} ({endpoint.source}): {_reason(error)}")
    raise SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE, "No container engine answers", details="\n".join(tried), hint=_hint(tried)
    )


def _hint(tried: Iterable[str]) -> str:
    return _RIGHTS_HINT if any(said.endswith("Permission denied") for said in tried) else start_hint()


def start_hint() -> str:
    """Explain how to start an engine when none listens."""
    make = ", `make engine` in this checkout installs and starts one" if is_checkout() else ""
    return f"Start it (as root: `systemctl start docker`{make}), or point engine.host / DOCKER_HOST at a running one."


def _is_late(error: BaseException) -> bool:
    """Whether an engine listens and did not answer in time. The SDK wraps the timeout: in its own exception while it
    asks for the version, in one of `requests` on a unix socket.
    """
    seen: BaseException | None = error
    late = False
    while seen is not None:
        if isinstance(seen, (requests.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError)):
            return False
        late = late or isinstance(seen, (*_LATE, urllib3.exceptions.ReadTimeoutError, requests.ReadTimeout))
        seen = seen.__cause__ or seen.__context__
    return late


def _slow(endpoint: Endpoint, timeout_s: float, error: Exception) -> SandboxError:
    return SandboxError(
        ErrorCode.ENGINE_UNAVAILABLE,
        f"The container engine did not answer within {timeout_s:g} s",
        details=f"{endpoint.url} ({endpoint.source}): it accepted the connection. {error}",
        hint=_SLOW_HINT,
    )


def _require_listener(url: str, connect_s: float) -> None:
    """Raises: OSError without a listener on a unix socket; docker 7.2 would leak the socket of a failed connect."""
    if url.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(connect_s)
            probe.connect("/" + url.removeprefix(_UNIX).lstrip("/"))


def _connect(endpoint: Endpoint, timeout_s: float, connect_s: float) -> Engine:
    _require_listener(endpoint.url, connect_s)
    tls = None
    if endpoint.tls_folder is not None:
        folder = endpoint.tls_folder
        tls = docker.tls.TLSConfig(
            client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
            ca_cert=str(folder / "ca.pem"),
            verify=True,
        )
    # The stubs say int; requests takes fractions of a second, and a pair: connect timeout, read timeout.
    patience: Any = (connect_s, timeout_s) if endpoint.url.startswith(_NETWORK) else timeout_s
    api = docker.APIClient(base_url=endpoint.url, tls=tls or False, timeout=patience)
    # Proxies and ~/.netrc do not apply to a unix socket, and looking for them takes a quarter of a request's time.
    api.trust_env = not endpoint.url.startswith(_UNIX)
    try:
        version = str(api.version(api_version=False)["Version"])
    except BaseException:
        api.close()
        raise
    api.timeout = timeout_s  # type: ignore[assignment]
    return Engine(api, endpoint, version)


def _reason(error: Exception) -> str:
    text = str(error)
    for known in ("No such file or directory", "Permission denied", "Connection refused", "timed out"):
        if known.lower() in text.lower():
            return known
    return type(error).__name__


@contextmanager
def translated(action: str, *, on_missing: Callable[[str], SandboxError] | None = None) -> Iterator[None]:
    """Translate the SDK's exceptions to `SandboxError`: the action that failed, and the engine's message as details."""
    try:
        yield
    except docker.errors.NotFound as error:
        if on_missing is not None:
            raise on_missing(str(error.explanation or error)) from error
        raise _engine_error(action, str(error.explanation or error)) from error
    except docker.errors.APIError as error:
        raise _engine_error(action, str(error.explanation or error)) from error
    except docker.errors.DockerException as error:
        raise _engine_error(action, str(error)) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or _is_late(error):
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"The engine did not answer in time: could not {action}",
                details=str(error),
                hint=_SLOW_HINT,
            ) from error
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The engine stopped answering: could not {action}",
            details=str(error),
            hint="The engine stopped or restarted, or the connection broke. `sandbox doctor` tests the connection.",
        ) from error


def _engine_error(action: str, details: str) -> SandboxError:
    return SandboxError(ErrorCode.INTERNAL, f"The engine refused to {action}", details=details)
