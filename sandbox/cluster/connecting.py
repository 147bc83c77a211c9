"""The dispatcher and the worker that a home's settings ask for."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox import Workbench
from sandbox.cluster.dispatcher import Dispatcher, LocalDispatcher
from sandbox.cluster.worker import ClusterWorker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import ErrorCode, SandboxError


def connect_dispatcher(workbench: Workbench) -> Dispatcher:
    """That of `cluster.address`, or without one the local dispatcher of this home.

    Raises: `invalid_input` without the extra; `network_error` if the server does not answer; as `find_address`.
    """
    settings = workbench.settings.cluster
    if not settings.address:
        return LocalDispatcher(ClusterWorker(workbench))
    _require_extra()
    from sandbox.cluster.temporal_client import find_address  # noqa: PLC0415 - an extra
    from sandbox.cluster.temporal_dispatcher import TemporalDispatcher  # noqa: PLC0415 - an extra

    return TemporalDispatcher(find_address(settings))


def work(workbench: Workbench, announce: Callable[[str], None]) -> None:
    """Take tasks of the cluster until SIGTERM or SIGINT, and then until operations in progress have ended. A second
    signal ends them. `announce`: called with the worker's id when it is connected. For the main thread.

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
    _require_extra()
    asyncio.run(_work(workbench, announce))


async def _work(workbench: Workbench, announce: Callable[[str], None]) -> None:
    from sandbox.cluster.temporal_client import connect_client, find_address  # noqa: PLC0415 - an extra
    from sandbox.cluster.temporal_worker import run_worker  # noqa: PLC0415 - an extra

    settings = workbench.settings.cluster
    client = await connect_client(find_address(settings))
    worker = ClusterWorker(workbench, settings.hub)
    slots = WorkerSlots(settings.slots or workbench.settings.container.parallel_on_this_host)
    with _first_signal() as stopping:
        await run_worker(client, worker, settings.name, slots, stopping, announce)


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


def _require_extra() -> None:
    if importlib.util.find_spec("temporalio") is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The client of Temporal is not installed",
            hint="Install the extra: pip install 'space-sandbox[temporal]'",
        )
