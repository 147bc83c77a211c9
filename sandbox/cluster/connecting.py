"""The dispatcher and the worker that a home's settings ask for."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pydantic import ValidationError

from sandbox import Workbench
from sandbox.cluster.dispatcher import Dispatcher, LocalDispatcher
from sandbox.cluster.publisher import ClusterPublisher
from sandbox.cluster.requirements import Requirements, check_requirements, find_profile_requirements
from sandbox.cluster.worker import ClusterWorker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.config import ClusterSettings, Settings
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import parse_remote


def connect_dispatcher(workbench: Workbench) -> Dispatcher:
    """That of `cluster.address`, or without one the local dispatcher of this home.

    Raises: `invalid_input` without the extra; `network_error` if the server does not answer; as `find_address`.
    """
    settings = workbench.settings.cluster
    if not settings.address:
        return LocalDispatcher(ClusterWorker(workbench, labels=settings.labels, publishes=True))
    _require_extra()
    from sandbox.cluster.temporal_client import find_address  # noqa: PLC0415 - an extra
    from sandbox.cluster.temporal_dispatcher import TemporalDispatcher  # noqa: PLC0415 - an extra

    return TemporalDispatcher(find_address(settings))


def find_requirements(workbench: Workbench, url: str, profile: str | None, asked: Requirements) -> dict[str, str]:
    """What a task of a repository requires of a worker: what its profile and the settings say, and before that what was
    asked for. The profile is known if it is named, or if this home has the repository.

    Raises: `not_found` for the profile; `invalid_input` for what cannot be required.
    """
    try:
        repo_id = parse_remote(url, allow_file=True, allow_http=True).id
    except SandboxError:  # the dispatcher says what is wrong with it
        repo_id = ""
    known = next((one for one in workbench.repositories() if one.id == repo_id), None)
    name = profile or (known.profile if known else None)
    chosen = workbench.profile(name) if name else None
    return check_requirements({**find_profile_requirements(workbench.settings, chosen, repo_id), **asked})


def work(workbench: Workbench, announce: Callable[[str], None], labels: Mapping[str, str] | None = None) -> None:
    """Take tasks of the cluster until SIGTERM or SIGINT, and then until operations in progress have ended. A second
    signal ends them. `announce`: called with the worker's id when it is connected. `labels`: beside those of the
    settings. For the main thread.

    Raises: `invalid_input` without an address or the extra; `network_error` if the server does not answer; as
    `find_address`.
    """
    settings = workbench.settings.cluster
    if not settings.address:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "This home belongs to no cluster",
            hint="Set cluster.address to the host and port of your Temporal server, and cluster.hub (docs/cluster.md).",
        )
    if settings.role == "publish":
        _require_publisher_settings(workbench.settings)
    _require_extra()
    asyncio.run(_work(workbench, announce, _add_labels(settings, labels or {})))


def _add_labels(settings: ClusterSettings, labels: Mapping[str, str]) -> dict[str, str]:
    """Raises: `invalid_input`."""
    try:
        return ClusterSettings.model_validate({"labels": {**settings.labels, **labels}}).labels
    except ValidationError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A worker cannot have these labels",
            details=describe_errors(error),
            hint="Names are lower-case words such as zone, values such as a1 (docs/cluster.md).",
        ) from error


async def _work(workbench: Workbench, announce: Callable[[str], None], labels: Mapping[str, str]) -> None:
    from sandbox.cluster.temporal_client import (  # noqa: PLC0415 - an extra
        connect_client,
        end_threads,
        find_address,
        make_runtime,
    )
    from sandbox.cluster.temporal_worker import run_publisher, run_worker  # noqa: PLC0415 - an extra

    settings = workbench.settings.cluster
    place, runtime, client = find_address(settings), make_runtime(), None
    try:
        client = await connect_client(place, runtime)
        with _first_signal() as stopping:
            if settings.role == "publish":
                publisher = ClusterPublisher(workbench, settings.hub)
                await run_publisher(client, publisher, settings.name, stopping, announce)
                return
            worker = ClusterWorker(workbench, settings.hub, labels)
            slots = WorkerSlots(settings.slots or workbench.settings.container.parallel_on_this_host)
            await run_worker(client, worker, settings.name, slots, stopping, announce)
    finally:
        await asyncio.to_thread(end_threads, runtime, client)  # which may need this loop


@contextmanager
def _first_signal() -> Iterator[asyncio.Event]:
    """Set by the first signal to end; the next one has its usual effect."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    ends = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        event.set()
        for number in ends:
            loop.remove_signal_handler(number)

    for number in ends:
        loop.add_signal_handler(number, stop)
    try:
        yield event
    finally:
        for number in ends:
            loop.remove_signal_handler(number)


def _require_publisher_settings(settings: Settings) -> None:
    if not settings.cluster.hub:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A controller that publishes takes tasks from the hub, and this home has no hub",
            hint="Set cluster.hub to the hub of the workers (docs/cluster.md).",
        )
    if settings.cache.url:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A controller that publishes runs the checks itself, so it takes no verdicts of a shared cache",
            hint="Remove cache.url from the settings of this home.",
        )


def _require_extra() -> None:
    if importlib.util.find_spec("temporalio") is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The client of Temporal is not installed",
            hint="Install the extra: pip install 'space-sandbox[temporal]'",
        )
