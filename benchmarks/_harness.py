"""Measure a product action and its floor in turn, in one run; print medians, spread and the ratio per round.

Times on a shared machine vary several-fold, so only ratios of neighbouring measurements are meaningful.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
SERIES = 3


@dataclass(frozen=True)
class Rounds:
    """`most`: below 15 only for slow actions. `tidy` runs after each round and is not measured."""

    most: int = 15
    tidy: Callable[[], object] = lambda: None


_PLAIN = Rounds()


@dataclass(frozen=True)
class Figures:
    """Times are in `unit`. `ratio`: the best of three medians of per-round ratios. `load`: load average of 1 minute."""

    name: str
    target: str
    product: float
    product_p10: float
    product_p90: float
    floor: float
    floor_name: str
    ratio: float
    ratios: tuple[float, ...]
    rounds: int
    load: float
    unit: str = "ms"


def compare(
    name: str,
    product: Callable[[], object],
    floor: Callable[[], object],
    *,
    floor_name: str,
    target: str,
    rounds: Rounds = _PLAIN,
) -> Figures:
    """Run both in turn after one warm-up each. The rounds are evaluated in three parts."""
    product()
    floor()
    rounds.tidy()
    pairs = []
    for _ in range(min(rounds.most, ROUNDS)):
        pairs.append((timed(product), timed(floor)))
        rounds.tidy()
    return judge(name, pairs, floor_name=floor_name, target=target)


def judge(
    name: str, pairs: Sequence[tuple[float, float]], *, floor_name: str, target: str, unit: str = "ms"
) -> Figures:
    """Print and save the figures of (product, floor) pairs. The rounds are evaluated in three parts."""
    medians = [statistics.median(p / f for p, f in part) for part in _thirds(pairs)]
    products = sorted(p for p, _ in pairs)
    figures = Figures(
        name=name,
        target=target,
        product=statistics.median(products),
        product_p10=products[len(products) // 10],
        product_p90=products[len(products) * 9 // 10],
        floor=statistics.median(f for _, f in pairs),
        floor_name=floor_name,
        ratio=min(medians),
        ratios=tuple(round(m, 6) for m in medians),
        rounds=len(pairs),
        load=round(os.getloadavg()[0], 1),
        unit=unit,
    )
    print(line(figures), flush=True)
    _keep(figures)
    return figures


def _thirds(pairs: Sequence[tuple[float, float]]) -> list[Sequence[tuple[float, float]]]:
    size = max(1, len(pairs) // SERIES)
    return [pairs[i : i + size] for i in range(0, size * SERIES, size) if pairs[i : i + size]]


def timed(action: Callable[[], object]) -> float:
    """The duration in milliseconds."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def line(figures: Figures) -> str:
    """One row of the table."""
    return (
        f"{figures.name:<44} {figures.product:9.1f} {figures.unit:<3} (p10 {figures.product_p10:.1f}, "
        f"p90 {figures.product_p90:.1f})  floor {figures.floor:9.1f} {figures.unit:<3} {figures.ratio:8.4f}x  "
        f"target {figures.target:<6} rounds {figures.rounds:2}  load {figures.load:4.1f}  floor: {figures.floor_name}"
    )


def _keep(figures: Figures) -> None:
    RESULTS.mkdir(exist_ok=True)
    slug = "-".join(figures.name.lower().replace(",", "").replace("`", "").replace("/", " ").split())
    (RESULTS / f"{slug}.json").write_text(json.dumps(asdict(figures), indent=1) + "\n")
