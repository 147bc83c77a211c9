"""Measure a product action and its floor interleaved in one run; print medians, spread and the ratio per round.

A shared machine swings several-fold, so only ratios of neighbouring measurements mean anything.
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
class Figures:
    """Milliseconds; `ratio` is the best of three medians of per-round ratios."""

    name: str
    target: str
    product_ms: float
    product_p10_ms: float
    product_p90_ms: float
    floor_ms: float
    floor_name: str
    ratio: float
    ratios: tuple[float, ...]


def compare(
    name: str, product: Callable[[], object], floor: Callable[[], object], *, floor_name: str, target: str
) -> Figures:
    """Run both `ROUNDS` times in turn after one warm-up each; the rounds are judged in three parts."""
    product()
    floor()
    pairs = [(_timed(product), _timed(floor)) for _ in range(ROUNDS)]
    medians = [statistics.median(p / f for p, f in part) for part in _thirds(pairs)]
    products = sorted(p for p, _ in pairs)
    figures = Figures(
        name=name,
        target=target,
        product_ms=statistics.median(products),
        product_p10_ms=products[len(products) // 10],
        product_p90_ms=products[len(products) * 9 // 10],
        floor_ms=statistics.median(f for _, f in pairs),
        floor_name=floor_name,
        ratio=min(medians),
        ratios=tuple(round(m, 4) for m in medians),
    )
    _report(figures)
    return figures


def _thirds(pairs: Sequence[tuple[float, float]]) -> list[Sequence[tuple[float, float]]]:
    size = max(1, len(pairs) // SERIES)
    return [pairs[i : i + size] for i in range(0, size * SERIES, size) if pairs[i : i + size]]


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def _report(figures: Figures) -> None:
    print(
        f"{figures.name:<44} {figures.product_ms:9.1f} ms  (p10 {figures.product_p10_ms:.1f}, "
        f"p90 {figures.product_p90_ms:.1f})  floor {figures.floor_ms:9.1f} ms  {figures.ratio:7.3f}x  "
        f"target {figures.target:<6} floor: {figures.floor_name}"
    )
    RESULTS.mkdir(exist_ok=True)
    slug = "-".join(figures.name.lower().replace(",", "").replace("`", "").split())
    (RESULTS / f"{slug}.json").write_text(json.dumps(asdict(figures), indent=1) + "\n")
