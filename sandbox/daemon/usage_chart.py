"""Usage of a run over time as polylines, each against its limit. Numbers only: no text of a guest is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from sandbox.lazy_dataclass import dataclass
from sandbox.models import UsageSeries

WIDTH, HEIGHT = 600, 80


@dataclass(frozen=True)
class Chart:
    """`points`: of an SVG polyline; the top of the picture is `limit`. `highest`: the largest value."""

    name: str
    unit: str
    points: str
    highest: float
    limit: float


def draw_charts(found: UsageSeries) -> tuple[Chart, ...]:
    """The charts of what this host counts."""
    samples, limits = found.samples, found.limits
    cpus = [
        (later.at_s, (later.cpu_time_s - one.cpu_time_s) / (later.at_s - one.at_s))
        for one, later in pairwise(samples)
        if one.cpu_time_s is not None and later.cpu_time_s is not None and later.at_s > one.at_s
    ]
    memory = [(s.at_s, float(s.memory_bytes)) for s in samples if s.memory_bytes is not None]
    pids = [(s.at_s, float(s.pids)) for s in samples if s.pids is not None]
    written = [(s.at_s, float(s.disk_written_bytes)) for s in samples if s.disk_written_bytes is not None]
    rows = (
        ("CPUs", "", cpus, limits.cpus),
        ("Memory", "bytes", memory, limits.memory_bytes),
        ("Processes", "", pids, limits.pids),
        ("Written to disk", "bytes", written, limits.disk_bytes),
    )
    return tuple(_draw(name, unit, values, float(limit)) for name, unit, values, limit in rows if values)


def _draw(name: str, unit: str, values: list[tuple[float, float]], limit: float) -> Chart:
    return Chart(name, unit, " ".join(_points(values, limit)), max(value for _, value in values), limit)


def _points(values: list[tuple[float, float]], limit: float) -> Iterable[str]:
    length = values[-1][0] or 1.0
    for at, value in values:
        yield f"{at / length * WIDTH:.1f},{HEIGHT - min(1.0, value / limit) * HEIGHT:.1f}"
