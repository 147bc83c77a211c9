"""Quarantine for containers that the engine cannot end: recorded after one deadline, left alone, retried by `gc`.

Theory. dockerd (seen: 20.10) holds a container's own lock while its runtime works. A runtime that hangs at `start` or
`kill` keeps the lock for ever, and every request about that container blocks: inspect, kill, remove. Lists, and all
other containers, still work. So the hot path may not touch such a container a second time: the first caller waits for
one deadline, and after that the container's name is not used again. The engine may still execute earlier requests: a
removal that was sent is done as soon as the lock is free.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.engine.quarantine_store import QuarantineStore
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker.errors
    import requests
else:  # loaded for an error, and for what `socket_api` has not (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")

REMOVE_TIMEOUT_S = 30.0
"""How long one removal may take. Reached on the hot path: the container is quarantined."""

RETRY_TIMEOUT_S = 5.0
_PAUSE_S = 0.2
_MIN_TIMEOUT_S = 0.1  # the HTTP library rejects a timeout of zero or less
_log = logging.getLogger(__name__)


def is_quarantined(engine: DockerApi, name: str) -> bool:
    """Whether the container of this name or id is quarantined. Sends no request to the engine."""
    held = engine.quarantine.names() if engine.quarantine is not None else {}
    return name in held or name in held.values()


def choose_free_name(engine: DockerApi, name: str) -> str:
    """Return the name, or the first `NAME-<number>` that no quarantined container has."""
    held = engine.quarantine.names() if engine.quarantine is not None else {}
    number = 1
    free = name
    while free in held:
        number += 1
        free = f"{name}-{number}"
    return free


def quarantine_container(engine: DockerApi, store: QuarantineStore, name: str, error: SandboxError) -> None:
    """Record a container that must not be touched any more."""
    known, container_id = _find_name_and_id(engine, name)
    store.add(known, container_id, f"{error.brief}: {error.details}"[:500])
    _log.warning("the container %s is quarantined, `sandbox gc` tries to remove it again: %s", known, error.brief)


def _find_name_and_id(engine: DockerApi, name: str) -> tuple[str, str]:
    """Find its name and id in the engine's list, which does not wait for a container's lock."""
    try:
        with translate_errors("list the containers"):
            listed = engine.api.containers(all=True)
    except SandboxError:
        return name, ""
    for found in listed:
        names = [n.removeprefix("/") for n in found["Names"]]
        if name in names or name == found["Id"]:
            return names[0], str(found["Id"])
    return name, ""


def remove_within(engine: DockerApi, name: str, seconds: float) -> None:
    """Kill and delete a container; a missing one is fine. Raises: `timeout` when the engine takes longer.

    Does not use the SDK's own call: that has no deadline of its own, and the connection's is shared with other threads.
    """
    api = engine.api
    url = f"{api.base_url}/v{api.api_version}/containers/{quote(name, safe='')}"
    with translate_errors("remove the container"):
        try:
            timeout_s = max(_MIN_TIMEOUT_S, min(seconds, float(api.timeout)))
            answer = api.delete(url, params={"v": "1", "force": "1"}, timeout=timeout_s)
        except requests.exceptions.ConnectionError as error:  # how a read timeout on a unix socket may arrive
            if "timed out" in str(error).lower():
                raise requests.exceptions.ReadTimeout(str(error)) from error
            raise
        if answer.status_code == requests.codes.not_found:
            return
        if answer.status_code >= requests.codes.bad_request:
            raise docker.errors.APIError(answer.reason, response=answer, explanation=answer.text[:500])


def retry_removal(engine: DockerApi, name: str) -> None:
    """Retry the removal of a quarantined container, briefly. Raises: `conflict` when the engine still cannot."""
    ends_at = time.monotonic() + RETRY_TIMEOUT_S
    while (error := _try_removal(engine, name, ends_at - time.monotonic())) is not None:
        # Any code but `timeout`: the engine answers again, and may be executing the earlier removal.
        if error.code is ErrorCode.TIMEOUT or time.monotonic() + _PAUSE_S > ends_at:
            raise SandboxError(
                ErrorCode.CONFLICT,
                "The engine still cannot end it",
                details=error.brief,
                hint="Restart the engine when no other container runs in it.",
            ) from error
        time.sleep(_PAUSE_S)
    if engine.quarantine is not None:
        engine.quarantine.remove(name)


def _try_removal(engine: DockerApi, name: str, seconds: float) -> SandboxError | None:
    try:
        remove_within(engine, name, seconds)
    except SandboxError as error:
        if error.code not in {ErrorCode.TIMEOUT, ErrorCode.INTERNAL}:
            raise
        return error
    return None
