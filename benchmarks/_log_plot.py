"""A plot with two logarithmic axes as SVG: a line for each series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 40, 50
COLOURS = ("#0b6e99", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#a16207", "#334155")

Series = Mapping[str, Mapping[int, float]]


def draw_log_plot(title: str, across: str, up: str, series: Series) -> str:
    """`series`: points by name. All values are above 0."""
    horizontal = _Axis([x for points in series.values() for x in points], LEFT, WIDTH - RIGHT)
    vertical = _Axis([y for points in series.values() for y in points.values()], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(WIDTH / 2, TOP / 2, title, "middle"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, "middle"),
        f'<g transform="rotate(-90 14 {HEIGHT / 2:.0f})">{_text(14, HEIGHT / 2, up, "middle")}</g>',
        *(_line(LEFT, vertical.place(y), WIDTH - RIGHT, vertical.place(y)) for y in vertical.decades),
        *(_line(horizontal.place(x), TOP, horizontal.place(x), HEIGHT - BOTTOM) for x in horizontal.decades),
        *(_text(LEFT - 6, vertical.place(y) + 4, f"{y:g}", "end") for y in vertical.decades),
        *(_text(horizontal.place(x), HEIGHT - BOTTOM + 16, f"{x:,g}", "middle") for x in horizontal.decades),
        *_draw_series(series, horizontal, vertical),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axis:
    """Places values between two coordinates; both ends are powers of ten."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        logs = [math.log10(value) for value in values]
        self._low, self._high = math.floor(min(logs)), max(math.ceil(max(logs)), math.floor(min(logs)) + 1)
        self._start, self._end = start, end

    @property
    def decades(self) -> list[float]:
        """The powers of ten on this axis."""
        return [10.0**power for power in range(self._low, self._high + 1)]

    def place(self, value: float) -> float:
        """The coordinate of a value."""
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def _draw_series(series: Series, horizontal: _Axis, vertical: _Axis) -> list[str]:
    parts, labels = [], _spread({name: vertical.place(points[max(points)]) for name, points in series.items()})
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(horizontal.place(x), vertical.place(y)) for x, y in sorted(points.items())]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(_text(WIDTH - RIGHT + 10, labels[name] + 4, name, "start", colour))
    return parts


def _spread(wanted: Mapping[str, float], apart: float = 15.0) -> dict[str, float]:
    """Places of labels near the wanted ones, from top to bottom, so that none covers another."""
    placed: dict[str, float] = {}
    lowest = -math.inf
    for name, at in sorted(wanted.items(), key=lambda item: item[1]):
        lowest = placed[name] = max(at, lowest + apart)
    return placed


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d4d4d4"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#262626") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
