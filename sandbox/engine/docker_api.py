"""Access to a Docker engine for the modules of this package, and the translation of its errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sandbox.engine.cgroups import CGROUP_ROOT, find_delegated_group
from sandbox.engine.endpoint import Endpoint
from sandbox.engine.products import Product, complete_podman_info, is_rootless
from sandbox.engine.quarantine_store import QuarantineStore
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker
    import docker.errors
    import requests
    import urllib3.exceptions
else:  # loaded for an error, and for what `socket_api` has not (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")
    urllib3 = LazyModule("urllib3")

UNIX = "unix://"
_TIMEOUT_ERRORS = (TimeoutError, BlockingIOError)
"""Signs of a busy engine on a unix socket. Without a listener the connection fails at once; a full queue blocks it."""

SLOW_HINT = (
    "The engine is stuck or very busy: wait, or restart it (`systemctl restart docker`) if no other container runs in "
    "it. engine.timeout_s sets how long the sandbox waits."
)


@dataclass(frozen=True)
class DockerApi:
    """Access to a reachable engine. `api` is for this package only. `is_local`: its cgroups and paths are this host's.

    `quarantine`: records containers that the engine cannot end; without it such a container is an error.
    """

    api: docker.APIClient  # or a `SocketApi`, which stands for one
    endpoint: Endpoint
    version: str
    quarantine: QuarantineStore | None = None
    product: Product = Product.DOCKER

    @property
    def is_local(self) -> bool:
        """Whether the engine shares this host's file system."""
        return self.endpoint.url.startswith(UNIX)

    def info(self) -> dict[str, Any]:
        """Read `GET /info`, for capability probes."""
        with translate_errors("read the engine's information"):
            info: dict[str, Any] = self.api.info()
            if self.product is Product.PODMAN:
                info = complete_podman_info(info, self.api.version(), os.path.isfile, _read_controllers(info))
        return info

    def close(self) -> None:
        """Close the sockets."""
        self.api.close()


def _read_controllers(info: Mapping[str, Any]) -> list[str]:
    """The controllers of control groups of version 2 that an engine of this host may use; a rootless one has those that
    are delegated to its user, if it asks that user's systemd for groups.
    """
    rootless = is_rootless(info)
    if rootless and info.get("CgroupDriver") != "systemd":
        return []
    group = find_delegated_group(os.geteuid()) if rootless else CGROUP_ROOT
    try:
        return (group / "cgroup.controllers").read_text(encoding="ascii").split()
    except OSError:
        return []


def is_answer_timeout(error: BaseException) -> bool:
    """Whether an engine listens and did not answer in time. The SDK wraps the timeout: in its own exception while it
    asks for the version, in one of `requests` on a unix socket.
    """
    seen: BaseException | None = error
    late = False
    while seen is not None:
        if isinstance(seen, (requests.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError)):
            return False
        late = late or isinstance(seen, (*_TIMEOUT_ERRORS, urllib3.exceptions.ReadTimeoutError, requests.ReadTimeout))
        seen = seen.__cause__ or seen.__context__
    return late


@contextmanager
def translate_errors(action: str, *, on_missing: Callable[[str], SandboxError] | None = None) -> Iterator[None]:
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
        if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)) or is_answer_timeout(error):
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"The engine did not answer in time: could not {action}",
                details=str(error),
                hint=SLOW_HINT,
            ) from error
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The engine stopped answering: could not {action}",
            details=str(error),
            hint="The engine stopped or restarted, or the connection broke. `sandbox doctor` tests the connection.",
        ) from error


def require_success(answer: requests.Response) -> None:
    """For a request that the SDK has no call for. Raises: as the SDK."""
    try:
        answer.raise_for_status()
    except requests.HTTPError as error:
        raise docker.errors.APIError(str(error), response=answer, explanation=read_message(answer)) from error


def read_message(answer: requests.Response) -> str:
    """What an engine says of a request that it refuses."""
    try:
        return str(answer.json()["message"])[:2000]
    except (ValueError, KeyError, TypeError):
        return answer.text[:2000]


def _engine_error(action: str, details: str) -> SandboxError:
    return SandboxError(ErrorCode.INTERNAL, f"The engine refused to {action}", details=details)
