"""Figures of the cluster that a home belongs to, for Prometheus. A server that is silent delays no other figure."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sandbox.cluster.dispatcher import Dispatcher
from sandbox.errors import describe_briefly
from sandbox.models.operations import WaitingLine, WorkerInfo

READ_S = 3.0
"""How long one request for figures waits; reached: the cluster counts as silent. The next one gets the answer."""

MOST_VERSIONS = 10
"""Of workers, each with a series of its own. The rest are one: who reaches the server can announce any version."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Figures:
    workers: tuple[WorkerInfo, ...]
    line: WaitingLine


class ClusterCollector(Collector):
    """Counts workers, slots and waiting tasks. `connect`: called at the first request, and again after a failure."""

    def __init__(self, connect: Callable[[], Dispatcher]) -> None:
        self._connect = connect
        self._dispatcher: Dispatcher | None = None
        self._pool = ThreadPoolExecutor(1, "cluster-figures")
        self._pending: Future[_Figures] | None = None
        self._lock = threading.Lock()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures, read now. Only `sandbox_cluster_up` if the cluster does not answer."""
        found = self._read_in_time()
        yield _gauge("sandbox_cluster_up", "Whether the cluster's server answers.", float(found is not None))
        if found is None:
            return
        workers = GaugeMetricFamily("sandbox_cluster_workers", "Workers that take tasks.", labels=["version"])
        for version, count in _count_versions(found.workers):
            workers.add_metric([version], count)
        yield workers
        slots = sum(one.slots or 0 for one in found.workers)
        yield _gauge("sandbox_cluster_slots", "Operations at once before the workers take no more tasks.", slots)
        yield _gauge("sandbox_cluster_waiting_tasks", "Tasks that wait for a worker.", found.line.tasks)
        yield _gauge("sandbox_cluster_waiting_oldest_seconds", "How long the first has waited.", found.line.oldest_s)

    def _read_in_time(self) -> _Figures | None:
        with self._lock:
            asked = self._pending = self._pending or self._pool.submit(self._read)
            if not wait((asked,), READ_S).done:
                return None
            self._pending = None
            if (error := asked.exception()) is not None:
                # Also one that was not foreseen: the figures of this host are in the same answer.
                _log.warning("the cluster's figures cannot be read: %s", ascii(describe_briefly(error)))
                return None
            return asked.result()

    def _read(self) -> _Figures:
        self._dispatcher = self._dispatcher or self._connect()
        return _Figures(self._dispatcher.workers(), self._dispatcher.line())


def _count_versions(workers: Iterable[WorkerInfo]) -> list[tuple[str, int]]:
    """The versions that most workers have, and how many; the rest as `other`."""
    count = Counter(one.version or "unknown" for one in workers)
    kept = dict(sorted(count.items(), key=lambda item: (-item[1], item[0]))[:MOST_VERSIONS])
    rest = count.total() - sum(kept.values())
    return sorted({**kept, **({"other": kept.get("other", 0) + rest} if rest else {})}.items())


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family
