"""The tests of Rust's own harness, from what `cargo test` prints: a line for each, then what the failed ones said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sandbox.checks.collected import MOST_CHARS, MOST_RESULTS, clip_text
from sandbox.checks.location import TEXT, find_location
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

_TEST = re.compile(r"test (\S.{0,400}) \.\.\. (ok|FAILED|ignored)\b")
_SAID = re.compile(r"---- (\S.{0,400}) stdout ----$")
_PANIC = re.compile(r"thread '.{0,400}' (?:\(\d+\) )?panicked at ")
_OUTCOMES = {"ok": TestOutcome.PASSED, "FAILED": TestOutcome.FAILED, "ignored": TestOutcome.SKIPPED}


_Place = tuple[str | None, int | None]


def read_cargo(lines: Iterable[str], folder: str = ".") -> Iterator[TestResult]:
    """Yield the tests in the order of the output, which is read first; of failed ones what they printed, if it is
    there. `folder`: where the program ran.
    """
    found = _CargoOutput(folder)
    for line in lines:
        found.take(line)
    yield from found.finish()


class _CargoOutput:
    """What the lines say so far. Of what failed tests printed, which comes last, only what is shown is kept."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._tests: list[tuple[str, TestOutcome]] = []
        self._said: dict[str, tuple[str, _Place] | None] = {}  # of those that failed
        self._name = ""  # of the test that has the output
        self._lines: list[str] = []
        self._size = 0
        self._chars = 0  # of what is kept of all tests

    def take(self, line: str) -> None:
        """Read the next line."""
        if found := _TEST.match(line):
            self._begin_block("")
            if len(self._tests) <= MOST_RESULTS and self._chars <= MOST_CHARS:  # one more says that there are more
                self._add(clip_text(found[1].removesuffix(" - should panic")), _OUTCOMES[found[2]])
        elif found := _SAID.match(line):
            self._begin_block(clip_text(found[1]))
        elif self._name and self._size < TEXT:
            self._lines.append(line[:TEXT])
            self._size += len(line) + 1

    def finish(self) -> Iterator[TestResult]:
        """Yield the tests."""
        self._begin_block("")
        for name, outcome in self._tests:
            if outcome is TestOutcome.FAILED and (said := self._said.get(name)):
                message, (path, line) = said
                yield TestResult(test=name, outcome=outcome, message=message or None, path=path, line=line)
            else:
                yield TestResult(test=name, outcome=outcome)

    def _add(self, name: str, outcome: TestOutcome) -> None:
        self._tests.append((name, outcome))
        self._chars += len(name)
        if outcome is TestOutcome.FAILED:
            self._said.setdefault(name, None)

    def _begin_block(self, name: str) -> None:
        """Keep what the block before says of a test that failed, and begin that of the next test; '' for none."""
        if self._lines and self._chars <= MOST_CHARS and self._said.get(self._name, ()) is None:
            said = self._said[self._name] = _explain(self._lines, self._folder)
            self._chars += len(said[0])
        self._name, self._lines, self._size = name, [], 0


def _explain(lines: list[str], folder: str) -> tuple[str, _Place]:
    """The message of a failed test that printed these lines, and its place."""
    start = next((n for n, line in enumerate(lines) if _PANIC.match(line)), None)
    text = "\n".join(lines if start is None else lines[start : start + 1])
    rest = [one for one in lines if one.strip()] if start is None else lines[start + 1 :]
    return clip_text("\n".join(rest[:3]).strip()), find_location(text, folder=folder)
