"""The life of one container: create, compare with the request, attach, start, wait, remove.

The container's main process is the command. No second command runs in it, and no file is copied into or out of it:
the product does not use the engine's `exec`, `cp` and archive endpoints.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sandbox.engine.cgroups import CgroupPaths, Sampler, find_cgroups
from sandbox.engine.container_types import (
    STOP_CHECK_INTERVAL_S,
    ContainerExit,
    ContainerSummary,
    StopCondition,
    Streams,
    never_stop,
)
from sandbox.engine.dialects import find_dialect
from sandbox.engine.direct_requests import find_object
from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.engine.guest_process import find_guest_pid
from sandbox.engine.mounts import require_mounts
from sandbox.engine.quarantine import REMOVE_TIMEOUT_S, is_quarantined, quarantine_container, remove_within
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import Verdict

if TYPE_CHECKING:
    import docker.errors
    import requests
    import tenacity
else:  # loaded for an error, and for what `socket_api` has not (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")
    tenacity = LazyModule("tenacity")

REMOVE_ATTEMPTS = 3
_DRAIN_S = 10.0
_LATE_S = 2.0


def run_to_end(
    engine: DockerApi,
    name: str,
    options: Mapping[str, Any],
    streams: Streams,
    *,
    deadline_s: float,
    stop_condition: StopCondition = never_stop,
) -> ContainerExit:
    """Run one fresh container until it ends, for at most `deadline_s` seconds or until `stop_condition` is met, and
    remove it.

    Raises: `policy_violation` when the created container differs from the request, `image_missing`, `internal` when
    the guest could not be started, `timeout` when the engine itself hangs. Interrupts pass through after removal.
    """
    with _temporary_container(engine, name, options) as container_id:
        pump = _attach(engine, container_id, streams)
        started_at, started = datetime.now(UTC), time.monotonic()
        with translate_errors("start the container"):
            engine.api.start(container_id)
        with Sampler(_check_mounts_and_find_cgroups(engine, container_id, options)) as sampler:
            timed_out, stopped = _wait_or_stop(engine, container_id, deadline_s, stop_condition)
            if timed_out or stopped is not None:
                kill_container(engine, container_id)
                _wait_timed_out(engine, container_id, _DRAIN_S)
        wall_time_s = time.monotonic() - started
        pump.join(timeout=_DRAIN_S)
        state = _read_end_state(engine, container_id)
    return ContainerExit(
        exit_code=int(state["ExitCode"]),
        oom_killed=bool(state["OOMKilled"]) or bool(sampler.counters.oom_kills),
        timed_out=timed_out,
        started_at=started_at,
        wall_time_s=wall_time_s,
        counters=sampler.counters,
        stop_verdict=stopped,
    )


@contextmanager
def _temporary_container(engine: DockerApi, name: str, options: Mapping[str, Any]) -> Iterator[str]:
    remove = remove_container
    try:
        yield str(create_container(engine, name, options)["Id"])
        remove = remove_ended_container
    finally:
        # By name: the name is unique to us, and known even if an interrupt arrives before the engine's answer.
        remove(engine, name)


def create_container(engine: DockerApi, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Create a container, compare it with the request, and return the engine's `inspect` answer. The caller removes
    the container, even when this fails.

    Raises: `policy_violation`, `image_missing`, `engine_unavailable` when it does not see our files, `internal`.
    """
    return find_dialect(engine).create(engine, name, options)


def remove_container(engine: DockerApi, name: str) -> None:
    """Kill and delete a container of ours. A missing container is fine; a quarantined one is left alone.

    When the engine does not answer in time, the container is quarantined. Raises: `engine_unavailable`; `internal` when
    the removal fails for another reason.
    """
    if is_quarantined(engine, name):
        return
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(REMOVE_ATTEMPTS),
        wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=2),
        retry=tenacity.retry_if_exception(_is_retryable),
        reraise=True,
    )
    try:
        attempts(remove_within, engine, name, REMOVE_TIMEOUT_S)
    except SandboxError as error:
        if error.code is ErrorCode.TIMEOUT and _try_quarantine(engine, name, error):
            return
        raise SandboxError(
            error.code if error.code is ErrorCode.ENGINE_UNAVAILABLE else ErrorCode.INTERNAL,
            f"The container {name} could not be removed",
            details=error.details,
            hint=f"Remove it with: docker rm -f {name}",
        ) from error


def remove_ended_container(engine: DockerApi, name: str) -> None:
    """As `remove_container`, when it is known how the guest ended: an engine that refuses or has stopped costs no
    verdict. The container is quarantined, so no check runs in it again, and `sandbox gc` removes it later.

    Raises: as `remove_container`, where it cannot be quarantined.
    """
    try:
        remove_container(engine, name)
    except SandboxError as error:
        if not _try_quarantine(engine, name, error):
            raise


def list_containers(engine: DockerApi, labels: Mapping[str, str]) -> list[ContainerSummary]:
    """List the containers with all these labels, running or not, except quarantined ones."""
    wanted = [f"{name}={value}" for name, value in labels.items()]
    with translate_errors("list our containers"):
        found = engine.api.containers(all=True, filters={"label": wanted})
    listed = [
        ContainerSummary(
            id=str(c["Id"]),
            name=c["Names"][0].removeprefix("/"),
            labels=dict(c["Labels"]),
            running=c["State"] == "running",
            mount_sources=tuple(m.get("Source") or "" for m in c.get("Mounts") or ()),
            created_at=datetime.fromtimestamp(c["Created"], UTC) if c.get("Created") else None,
        )
        for c in found
    ]
    return [container for container in listed if not is_quarantined(engine, container.name)]


def remove_containers(engine: DockerApi, labels: Mapping[str, str]) -> None:
    """Remove every container with all these labels, running or not."""
    for container in list_containers(engine, labels):
        remove_container(engine, container.id)


def _try_quarantine(engine: DockerApi, name: str, error: SandboxError) -> bool:
    """Quarantine a container; False where that cannot be recorded."""
    if engine.quarantine is not None:
        with suppress(OSError):  # the home cannot be written
            quarantine_container(engine, engine.quarantine, name, error)
            return True
    return False


def _is_retryable(error: BaseException) -> bool:
    """Timeouts are not retried: an engine that did not answer within one deadline does not answer within three."""
    return isinstance(error, SandboxError) and error.code is not ErrorCode.TIMEOUT


def _attach(engine: DockerApi, container_id: str, streams: Streams) -> threading.Thread:
    """Read the guest's output in a thread. Attach before the start, or the first output is lost."""
    with translate_errors("attach to the container"):
        frames = engine.api.attach(container_id, stdout=True, stderr=True, stream=True, demux=True)
    pump = threading.Thread(target=_pump, args=(frames, streams), name="guest-output", daemon=True)
    pump.start()
    return pump


def _pump(frames: Any, streams: Streams) -> None:
    try:
        with suppress(OSError, ValueError):  # the socket closes when the container ends
            for out, err in frames:
                if out:
                    streams.stdout(out)
                if err:
                    streams.stderr(err)
    finally:
        with suppress(OSError):
            frames._response.close()  # frames.close() leaves the descriptor to the garbage collector (docker 7.2)


def _wait_or_stop(
    engine: DockerApi, container_id: str, deadline_s: float, stop_condition: StopCondition
) -> tuple[bool, Verdict | None]:
    """Wait for the first of: the deadline (True), a met stop condition (its verdict), the guest's end."""
    ends_at = time.monotonic() + deadline_s
    while (left_s := ends_at - time.monotonic()) > 0:
        if (reason := stop_condition()) is not None:
            return False, reason
        if not _wait_timed_out(engine, container_id, min(left_s, STOP_CHECK_INTERVAL_S)):
            return False, None
    return _is_still_running(engine, container_id), None


def _is_still_running(engine: DockerApi, container_id: str) -> bool:
    """Checked at the deadline, with the engine's full timeout: a slow engine may not have reported the end yet."""
    asked = time.monotonic()
    with translate_errors("inspect the container"):
        running = bool(engine.api.inspect_container(container_id)["State"]["Running"])
    if running and time.monotonic() - asked > STOP_CHECK_INTERVAL_S:
        return _wait_timed_out(
            engine, container_id, _LATE_S
        )  # the engine stalled, and may not have noticed the end itself
    return running


def _wait_timed_out(engine: DockerApi, container_id: str, seconds: float) -> bool:
    """Wait for the end of the container. Returns True when the time ran out first."""
    with translate_errors("wait for the container"):
        try:
            engine.api.wait(container_id, timeout=seconds)  # type: ignore[arg-type]  # requests takes fractions
        except requests.exceptions.ReadTimeout:
            return True
        except requests.exceptions.ConnectionError as error:  # how the SDK reports a read timeout on a unix socket
            if "timed out" in str(error).lower():
                return True
            raise
    return False


def kill_container(engine: DockerApi, container_id: str) -> None:
    """Kill a container. One that has ended or was removed is fine."""
    with translate_errors("kill the container"):
        try:
            engine.api.kill(container_id, signal="SIGKILL")
        except docker.errors.APIError as error:
            ended = error.status_code in {requests.codes.conflict, requests.codes.not_found}  # 409: it has just ended
            if not ended and _is_running(engine, container_id):  # Podman has other codes for it (seen: 4.3.1)
                raise


def _is_running(engine: DockerApi, container_id: str) -> bool:
    found = find_object(engine, "containers", container_id)
    return found is not None and bool(found["State"]["Running"])


def _read_end_state(engine: DockerApi, container_id: str) -> dict[str, Any]:
    with translate_errors("inspect the ended container"):
        state: dict[str, Any] = engine.api.inspect_container(container_id)["State"]
    if state["Running"]:
        raise SandboxError(
            ErrorCode.TIMEOUT,
            "The engine did not end the container in time",
            hint="Run `sandbox gc` to try the removal again. If that fails, restart the engine.",
        )
    if state.get("Error"):
        raise SandboxError(ErrorCode.INTERNAL, "The engine could not run the container", details=str(state["Error"]))
    return state


def _check_mounts_and_find_cgroups(
    engine: DockerApi, container_id: str, options: Mapping[str, Any]
) -> CgroupPaths | None:
    """Check the guest's mounts and find its control groups; None when it has ended or the engine is not local."""
    if not engine.is_local:
        return None

    def inspect() -> dict[str, Any] | None:
        with translate_errors("inspect the started container"):
            return find_object(engine, "containers", container_id)

    inspected = inspect()
    socket_path, timeout_s = engine.endpoint.socket_path, float(engine.api.timeout)
    pid = find_guest_pid(socket_path, timeout_s, inspected, inspect) if inspected else 0
    if not pid:
        return None
    require_mounts(pid, options)
    return find_cgroups(pid)
