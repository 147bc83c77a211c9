"""Each regular expression of the product is linear, or reads only what is short: hostile texts reach many of them."""

from __future__ import annotations

import re

import pytest

from devtools.slow_patterns import METHODS, UsedPattern, find_patterns, find_slow

BOUNDED = {
    "sandbox.dependencies.requirement_text:_URL": "TEXT_CHARS, looked at first",
    "sandbox.edits.patch_paths:_TIMESTAMP": "_TIMESTAMP_BYTES",
}
"""Patterns that grow as the square of what they read, with what keeps that short."""


@pytest.mark.slow
def test_s188_no_pattern_takes_long_for_a_long_text() -> None:
    patterns = list(find_patterns())
    assert len(patterns) > 400
    slow = {found.place: str(found) for used in patterns if (found := find_slow(used))}
    assert slow.keys() <= BOUNDED.keys(), "\n".join(text for place, text in slow.items() if place not in BOUNDED)
    assert BOUNDED.keys() == slow.keys(), "one of these is quick now: remove it"


SLOW = {
    "cubic": (r"^\s*#?\s*(?:---|type:.*)?\s*$", "match"),
    "a number that is searched": (r"(\d+)\.(\d+)", "search"),
    "blanks at the end": (rb"(?<!\\)((?:\\\\)*) +\Z", "sub"),
    "nested": (r"(?:a|b+)+c", "fullmatch"),
    "in a branch": (r"x|y(?:\d*)*\d+z", "match"),
    "behind a text": (r"error: (\S+\s*)+;", "search"),
}


@pytest.mark.parametrize("name", SLOW)
def test_slow_patterns_are_found(name: str) -> None:
    pattern, method = SLOW[name]
    assert find_slow(UsedPattern(name, re.compile(pattern), frozenset({method}))) is not None


@pytest.mark.parametrize(
    "pattern", [r"\d+\.\d+\Z", r"[a-z]++:", r"(?>\s+)x", r"(?P<q>['\"])a*(?P=q)", r"[^\n]*\n?", r"(?=a)b*(?!c)"]
)
def test_linear_patterns_are_not_taken_for_slow(pattern: str) -> None:
    assert find_slow(UsedPattern("linear", re.compile(pattern), METHODS & {"match", "fullmatch"})) is None
