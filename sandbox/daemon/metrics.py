"""`GET /metrics`: what a home does, for Prometheus. It is read at each request; no text of a guest is a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from shutil import disk_usage

import anyio.to_thread
from anyio import CapacityLimiter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from sandbox.models import ApprovalState, TaskStatus
from sandbox.version import __version__
from sandbox.workbench import Workbench

_SCRAPES_AT_ONCE = 2
"""In threads of their own: those of persons must be free however often an agent with the token asks, and figures are
wanted most while all calls of agents wait for a silent remote.
"""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class HomeCollector(Collector):
    """Counts what is in a home."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures, read now."""
        info = GaugeMetricFamily("sandbox_info", "The daemon's version.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        statuses = Counter(row.status for row in self._workbench.task_lines())
        statuses[TaskStatus.SPARE] = len(self._workbench.pool())  # no table of tasks has them
        tasks = GaugeMetricFamily("sandbox_tasks", "Tasks by status.", labels=["status"])
        for status in TaskStatus:
            tasks.add_metric([status.value], statuses[status])
        yield tasks
        repositories = GaugeMetricFamily("sandbox_repositories", "Registered repositories.")
        repositories.add_metric([], len(self._workbench.repositories()))
        yield repositories
        pending = [one for one in self._workbench.approvals() if one.state is ApprovalState.PENDING]
        questions = GaugeMetricFamily("sandbox_approvals_pending", "Questions that wait for a person.")
        questions.add_metric([], len(pending))
        yield questions
        space = disk_usage(self._workbench.home)
        disk = GaugeMetricFamily("sandbox_home_disk_bytes", "The file system of the home.", labels=["kind"])
        disk.add_metric(["total"], space.total)
        disk.add_metric(["free"], space.free)
        yield disk


def make_registry(workbench: Workbench) -> CollectorRegistry:
    """The figures of a home, of its cluster if it belongs to one, and of the daemon's process that serves HTTP."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HomeCollector(workbench))
    if workbench.settings.cluster.address:
        from sandbox.cluster.connecting import connect_dispatcher  # noqa: PLC0415 - lazy: few homes have a cluster
        from sandbox.daemon.cluster_metrics import ClusterCollector  # noqa: PLC0415 - as above

        registry.register(ClusterCollector(partial(connect_dispatcher, workbench)))
    ProcessCollector(registry=registry)
    return registry


def make_endpoint(workbench: Workbench) -> Callable[[Request], Awaitable[Response]]:
    """`GET /metrics`."""
    return partial(_show, make_registry(workbench), CapacityLimiter(_SCRAPES_AT_ONCE))


async def _show(registry: CollectorRegistry, threads: CapacityLimiter, _request: Request) -> Response:
    return Response(await anyio.to_thread.run_sync(generate_latest, registry, limiter=threads), media_type=_TEXT)
