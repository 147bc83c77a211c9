"""The tests of Rust's own harness, from what `cargo test` prints: a line for each, then what the failed ones said."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandbox.checks.collected import clip_text
from sandbox.checks.location import TEXT, find_location
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

_TEST = re.compile(r"test (\S.{0,400}) \.\.\. (ok|FAILED|ignored)\b")
_SAID = re.compile(r"---- (\S.{0,400}) stdout ----$")
_PANIC = re.compile(r"thread '.{0,400}' (?:\(\d+\) )?panicked at ")
_OUTCOMES = {"ok": TestOutcome.PASSED, "FAILED": TestOutcome.FAILED, "ignored": TestOutcome.SKIPPED}


def read_cargo(lines: Iterable[str], folder: str = ".") -> list[TestResult]:
    """The tests in the order of the output; of failed ones what they printed, if it is there."""
    results: list[TestResult] = []
    said: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if found := _TEST.match(line):
            outcome = _OUTCOMES[found[2]]
            results.append(TestResult(test=clip_text(found[1].removesuffix(" - should panic")), outcome=outcome))
            current = None
        elif found := _SAID.match(line):
            current = said.setdefault(clip_text(found[1]), [])
        elif current is not None and sum(map(len, current)) < TEXT:
            current.append(line)
    return [_explain(result, said.get(result.test), folder) for result in results]


def _explain(result: TestResult, lines: list[str] | None, folder: str) -> TestResult:
    if result.outcome is not TestOutcome.FAILED or not lines:
        return result
    start = next((n for n, line in enumerate(lines) if _PANIC.match(line)), None)
    text = "\n".join(lines if start is None else lines[start : start + 1])
    path, line = find_location(text, folder=folder)
    rest = [one for one in lines if one.strip()] if start is None else lines[start + 1 :]
    message = clip_text("\n".join(rest[:3]).strip())
    return result.model_copy(update={"message": message or None, "path": path, "line": line})
