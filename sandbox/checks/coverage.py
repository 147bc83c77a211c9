"""Sum up coverage files: Cobertura (XML) and lcov. Guest data: bounded in size and time, shown, never used for a
verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import XMLParser

from sandbox.checks.output_lines import ReadingTime

MOST_BYTES = 20 * 1024**2
COVERAGE_S = 10.0
"""Processor time for the coverage files of a run: 20 MB of what tools write took 0.2 s, of the slowest 1.7 s."""

_PIECE_BYTES = 64 * 1024
_MOST_LINES = 100_000_000
_NUMBER = re.compile(r"[0-9]{1,9}")
_BETWEEN_LOOKS = 1000  # matches
_LCOV = re.compile(rb"^(LF|LH):([0-9]{1,9})\r?$", re.MULTILINE)


class _RootAttributes:
    """A target of the XML parser that keeps the first tag alone: no tree is built."""

    def __init__(self) -> None:
        self.tag, self.attributes = "", dict[str, str]()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.tag:
            self.tag, self.attributes = tag, dict(attributes)

    def end(self, _tag: str) -> None:
        """Ignored."""

    def data(self, _text: str) -> None:
        """Ignored."""

    def close(self) -> None:
        """Ignored."""


def read_cobertura(content: bytes) -> tuple[int, int] | None:
    """Covered and valid lines, as the root element says; None if it does not. Only the beginning is parsed."""
    root = _RootAttributes()
    parser = XMLParser(target=root)
    try:
        parser.feed(content[:_PIECE_BYTES])
    except (ParseError, DefusedXmlException, LookupError, ValueError):  # LookupError: encoding
        return None
    if root.tag != "coverage":
        return None
    return _as_counts(root.attributes.get("lines-covered", ""), root.attributes.get("lines-valid", ""))


def read_lcov(content: bytes, left: ReadingTime) -> tuple[int, int] | None:
    """Lines hit and lines found of all records; None without any, and if the time is over before the end."""
    sums = {b"LF": 0, b"LH": 0}
    found = False
    for number, match in enumerate(_LCOV.finditer(content)):
        if number % _BETWEEN_LOOKS == 0 and left.look():
            return None
        sums[match[1]] += int(match[2])
        found = True
    return _within(sums[b"LH"], sums[b"LF"]) if found else None


def _as_counts(covered: str, total: str) -> tuple[int, int] | None:
    if not (_NUMBER.fullmatch(covered) and _NUMBER.fullmatch(total)):
        return None
    return _within(int(covered), int(total))


def _within(covered: int, total: int) -> tuple[int, int] | None:
    return (covered, total) if covered <= total <= _MOST_LINES else None


READERS: dict[str, Callable[[bytes, ReadingTime], tuple[int, int] | None]] = {
    "cobertura": lambda content, _: read_cobertura(content),
    "lcov": read_lcov,
}
