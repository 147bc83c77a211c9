"""Measure a product action and its floor in turn, in one run; print medians, spread and the ratio per round.

Times on a shared machine vary several-fold, so only ratios of neighbouring measurements are meaningful.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

from benchmarks._repositories import SIZES

RESULTS = Path(__file__).parent / "results"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
_SIZE_IN_NAME = re.compile(rf", ({'|'.join(SIZES)})\b")
_RATIO_TARGET = re.compile(r"(\d+(?:\.\d+)?)x")


@dataclass(frozen=True)
class Rounds:
    """`most`: below 15 only where a round takes seconds. `tidy` runs after each round and is not measured."""

    most: int = 15
    tidy: Callable[[], object] = lambda: None


_PLAIN = Rounds()


@dataclass(frozen=True)
class Figures:
    """Times are in `unit`. `ratio`: the median of the ratios of all rounds; `ratio_p25`, `ratio_p75`: their quartiles.

    `load`: load average of 1 minute.
    """

    name: str
    target: str
    product: float
    product_p10: float
    product_p90: float
    floor: float
    floor_name: str
    ratio: float
    ratio_p25: float
    ratio_p75: float
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
    """Run both in turn after one warm-up each."""
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
    """Print and save the figures of (product, floor) pairs, one of each round."""
    low, middle, high = quartiles([p / f for p, f in pairs])
    products = sorted(p for p, _ in pairs)
    figures = Figures(
        name=name,
        target=target,
        product=statistics.median(products),
        product_p10=products[len(products) // 10],
        product_p90=products[len(products) * 9 // 10],
        floor=statistics.median(f for _, f in pairs),
        floor_name=floor_name,
        ratio=middle,
        ratio_p25=low,
        ratio_p75=high,
        rounds=len(pairs),
        load=round(os.getloadavg()[0], 1),
        unit=unit,
    )
    print(line(figures), flush=True)
    _keep(figures)
    return figures


def quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third quartile of all ratios, never of the best of them."""
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high


def timed(action: Callable[[], object]) -> float:
    """The duration in milliseconds."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def line(figures: Figures) -> str:
    """One row of the table in the terminal."""
    return (
        f"{figures.name:<44} {figures.product:9.1f} {figures.unit:<3} (p10 {figures.product_p10:.1f}, "
        f"p90 {figures.product_p90:.1f})  floor {figures.floor:9.1f} {figures.unit:<3} {figures.ratio:8.4f}x "
        f"({figures.ratio_p25:.3g} to {figures.ratio_p75:.3g})  target {figures.target:<6} rounds {figures.rounds:2}  "
        f"load {figures.load:4.1f}  floor: {figures.floor_name}"
    )


def markdown_row(figures: Figures) -> str:
    """One row of the table in docs/benchmarks.md. A missed ratio is bold."""
    size = _SIZE_IN_NAME.search(figures.name)
    files = f"{SIZES[size[1]][0]:,}" if size else ""
    what = _SIZE_IN_NAME.sub("", figures.name)
    ratio = f"{_round(figures.ratio)}x"
    target = _RATIO_TARGET.match(figures.target)
    if target and figures.ratio > float(target[1]):
        ratio = f"**{ratio}**"
    cells = (
        f"{what} / {figures.floor_name}",
        files,
        _format_amount(figures.product, figures.unit),
        _format_amount(figures.floor, figures.unit),
        ratio,
        f"{_round(figures.ratio_p25)} to {_round(figures.ratio_p75)}",
        figures.target,
        str(figures.rounds),
        f"{figures.load:g}",
    )
    return f"| {' | '.join(cells)} |"


def _format_amount(value: float, unit: str) -> str:
    """Three digits that count, and seconds where there are a thousand milliseconds."""
    return f"{_round(value / 1000)} s" if unit == "ms" and value >= 999.5 else f"{_round(value)} {unit}"


def _round(value: float) -> str:
    """Three digits that count, never an exponent."""
    return f"{Decimal(f'{value:.3g}'):,f}"


def read_figures(name: str) -> Figures | None:
    """What was last measured under this name; None if it was not."""
    path = _find_result(name)
    return Figures(**json.loads(path.read_text())) if path.exists() else None


def _keep(figures: Figures) -> None:
    RESULTS.mkdir(exist_ok=True)
    _find_result(figures.name).write_text(json.dumps(asdict(figures), indent=1) + "\n")


def _find_result(name: str) -> Path:
    return RESULTS / f"{'-'.join(name.lower().replace(',', '').replace('`', '').replace('/', ' ').split())}.json"
