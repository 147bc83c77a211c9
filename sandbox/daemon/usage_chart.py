"""Usage of a run over time as polylines, each against its limit. Numbers only: no text of a guest is drawn.

The limit on disk is one on what the files hold. What was written has none: files that were deleted or written again are
in it, so it may be many times that limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from sandbox.lazy_dataclass import dataclass
from sandbox.limit_shares import is_near_limit
from sandbox.models import UsageSeries

WIDTH, HEIGHT = 600, 80
_HEADROOM = 1.1


@dataclass(frozen=True)
class Chart:
    """`points`: of an SVG polyline over `length_s`; the top of the picture is `top`. `highest`: the largest value.

    `limit`: None where there is none. `limit_y`: where the limit is; None if it is above the picture.
    """

    name: str
    unit: str
    points: str
    highest: float
    limit: float | None
    limit_y: float | None
    top: float
    length_s: float


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
    used = [(s.at_s, float(s.disk_used_bytes)) for s in samples if s.disk_used_bytes is not None]
    written = [(s.at_s, float(s.disk_written_bytes)) for s in samples if s.disk_written_bytes is not None]
    rows = (
        ("CPU", "CPUs", cpus, limits.cpus),
        ("Memory", "bytes", memory, limits.memory_bytes),
        ("Processes", "processes", pids, limits.pids),
        ("Disk", "bytes", used, limits.disk_bytes),
        ("Written to disk", "bytes", written, None),
    )
    return tuple(_draw(name, unit, values, limit) for name, unit, values, limit in rows if values)


def _draw(name: str, unit: str, values: list[tuple[float, float]], limit: float | None) -> Chart:
    highest = max(value for _, value in values)
    top = max(highest, limit) if limit is not None and is_near_limit(highest, limit) else highest or limit or 1.0
    top *= _HEADROOM
    top = math.ceil(top) if unit == "processes" else top  # there is no half of one
    limit_y = round(HEIGHT - limit / top * HEIGHT, 1) if limit is not None and limit <= top else None
    length = values[-1][0] or 1.0
    return Chart(name, unit, " ".join(_points(values, top, length)), highest, limit, limit_y, top, length)


def _points(values: list[tuple[float, float]], top: float, length: float) -> Iterable[str]:
    for at, value in values:
        yield f"{at / length * WIDTH:.1f},{HEIGHT - value / top * HEIGHT:.1f}"
