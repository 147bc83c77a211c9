"""Tests from what runners of JavaScript print for people: `node --test`, borp, mocha, jest, AVA; of vitest, jasmine and
uvu only the sums. Guest data.

Each prints sums at its end. A line with a mark names a test, the lines above it with less indentation its suites.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sandbox.checks.collected import MOST_CHARS, MOST_RESULTS, clip_text
from sandbox.checks.location import TEXT
from sandbox.checks.printed_tests import NamedTest, choose_named
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

PASSED, FAILED, SKIPPED = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.SKIPPED
_MARK = re.compile(
    r"( {0,100})(?:([✔✓√])|([✖✕✘×])(?: \[fail\]:)?|(﹣|[○✎](?: skipped| todo)?|- \[(?:skip|todo)\])) (\S.*)"
)
_MOCHA_MARK = re.compile(r"( {2,100})(?:(\d{1,6})\)|-) (\S.*)")
_SUITE = re.compile(r"( {0,100})(▶ |(?=\S))(.*)")
_TIME = re.compile(r" \([\d.]{1,20} ?m?s\)")
_LATER = re.compile(r" # (?:SKIP|TODO)\b.*", re.IGNORECASE)
_SUM = re.compile(r"ℹ (tests|suites|pass|fail|cancelled|skipped|todo) (\d{1,9})$")
_MOCHA_SUM = re.compile(r"  (\d{1,9}) (passing|pending|failing)(?: \([\w.]{1,20}\))?$")
_AVA_SUM = re.compile(r"  (\d{1,9}) tests? (passed|failed|skipped|todo)$")
_JEST_SUM = re.compile(r"(?:Tests: +(\d.{0,200}), \d{1,9} total| +Tests  (\d.{0,200}) \(\d{1,9}\))$")  # or vitest
_JEST_PART = re.compile(r"(\d{1,9}) (failed|skipped|todo|passed)")
_JASMINE_SUM = re.compile(r"(\d{1,9}) specs?, (\d{1,9}) failures?(?:, (\d{1,9}) pending specs?)?$")
_UVU_SUM = re.compile(r"  (Total|Passed|Skipped): +(\d{1,9})$")
_NODE_FAILURE = re.compile(r"test at (\S{1,200}):(\d{1,7}):\d{1,7}$")
_MOCHA_FAILURE = re.compile(r"  \d{1,6}\) (\S.*)")
_JEST_FAILURE = re.compile(r"  ● (?!Console$)(\S.*)")
_AVA_RULE = "  ─"  # stands before what AVA says of a failed test, and before its sums
_JEST_FILE = re.compile(r"(?:PASS|FAIL|RUNS) \S")
_BEGINS_SUM = frozenset("ℹTPS0123456789")
_FILE_OF_VITEST = re.compile(r" {1,3}\(\d{1,9} tests?\b")
_OUTCOMES = {
    **dict.fromkeys(("pass", "passing", "passed"), PASSED),
    **dict.fromkeys(("fail", "cancelled", "failing", "failed"), FAILED),
    **dict.fromkeys(("skipped", "todo", "pending"), SKIPPED),
}
_ARROW = "▶ "
_BETWEEN = " › "
_DEEPEST, _MOST_FAILURES, _NAME = 50, 1000, 1000


_Counts = Sequence[tuple[str | int, str]]


@dataclass
class _FailureText:
    """What a runner says of a failed test. `is_named`: its title has the suites too. `is_open`: more of them follow."""

    title: str = ""
    place: tuple[str, str] = ("", "")
    is_named: bool = False
    is_open: bool = False
    lines: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, line: str) -> None:
        if self.size < TEXT:
            self.lines.append(line)
            self.size += len(line) + 1


class NodeReader:
    """Reads the lines of one or more streams. `unnamed`: how many tests the sums count beside those that it yields."""

    def __init__(self, folder: str = ".") -> None:
        """`folder`: where the program ran."""
        self._folder = folder
        self.unnamed: Counter[TestOutcome] = Counter()

    def read(self, lines: Iterable[str]) -> Iterator[TestResult]:
        """Yield the tests that the lines name; none where there is no sum."""
        found = _RunnerOutput()
        for line in lines:
            found.take(line)
        if not found.has_sum:
            return
        failed = [_describe(name, failure or _FailureText()) for name, failure in found.name_failed()]
        others = [NamedTest(name, outcome) for name, outcome in found.named if outcome is not FAILED]
        kept, unnamed = choose_named([*failed, *others], found.count())
        self.unnamed += unnamed
        yield from (one.to_result(self._folder) for one in kept)


def _describe(name: str, failure: _FailureText) -> NamedTest:
    first = next((line.strip() for line in failure.lines if line.strip()), "")
    return NamedTest(name, FAILED, first, "\n".join(failure.lines), failure.place)


class _RunnerOutput:
    """What one stream says so far."""

    def __init__(self) -> None:
        self.named: list[tuple[str, TestOutcome]] = []
        self.sums: Counter[TestOutcome] = Counter()
        self.has_sum = False
        self._says_passed = True
        self._total = 0  # of uvu, whose other sums follow
        self._suites: list[tuple[int, str]] = []
        self._ended: list[tuple[str, TestOutcome]] = []
        self._has_arrows = False  # node's runner: only lines with one are suites
        self._is_over = False  # the list of failures follows
        self._failures: list[_FailureText] = []
        self._chars = 0  # of all names

    def take(self, line: str) -> None:
        """Read the next line."""
        if not line or line.isspace():
            return
        if self._take_sum(line) or self._take_failure(line):
            return
        mark = _MARK.match(line)
        if mark and _FILE_OF_VITEST.search(mark[5]):
            return
        if mark:
            self._take_mark(len(mark[1]), mark[5], PASSED if mark[2] else FAILED if mark[3] else SKIPPED)
        elif self._is_over and not line.lstrip(" ").startswith(_ARROW):
            if self._failures:
                self._failures[-1].add(line)
        elif not self._take_mocha_mark(line):
            self._take_suite(line)

    def _take_sum(self, line: str) -> bool:
        counts = self._find_counts(line) if line.lstrip(" ")[:1] in _BEGINS_SUM else None
        if counts is None:
            return False
        for count, word in counts:
            self.has_sum = True
            if word == "suites":  # what had others in it was a test of node's runner, if there was no suite
                self.named += [] if int(count) else self._ended
                self._ended.clear()
            if word in _OUTCOMES:
                self.sums[_OUTCOMES[word]] += int(count)
        self._is_over = True
        self._suites.clear()
        return True

    def _find_counts(self, line: str) -> _Counts | None:
        """The numbers and words of a sum."""
        if found := _SUM.match(line):
            return [(found[2], found[1])]
        if found := _MOCHA_SUM.match(line):
            return [(found[1], found[2])]
        if found := _AVA_SUM.match(line):
            self._says_passed &= found[2] != "failed"  # then AVA does not say how many passed
            return [(found[1], found[2])]
        if found := _JEST_SUM.match(line):
            return _JEST_PART.findall(found[1] or found[2])
        if found := _JASMINE_SUM.match(line):
            specs, failed, pending = (int(count or 0) for count in found.groups())
            return [(max(specs - failed - pending, 0), "passed"), (failed, "failed"), (pending, "pending")]
        found = _UVU_SUM.match(line)
        return self._count_of_uvu(found[1], int(found[2])) if found else None

    def _count_of_uvu(self, word: str, count: int) -> _Counts:
        if word == "Total":
            self._total = count
            return []
        if word == "Skipped":
            return [(count, "skipped")]
        return [(count, "passed"), (max(self._total - count, 0), "failed")]

    def _take_failure(self, line: str) -> bool:
        """The beginning of what is said of a failed test."""
        if found := _JEST_FAILURE.match(line):
            self._begin_failure(_FailureText(found[1], is_named=True))
            self._is_over = True
        elif _JEST_FILE.match(line):
            self._is_over, self._suites = False, []
        elif line == _AVA_RULE:
            self._is_over = True
        elif self._is_over and (found := _NODE_FAILURE.match(line)):
            self._begin_failure(_FailureText(place=(found[1], found[2])))
        elif self._is_over and (found := _MOCHA_FAILURE.match(line)):
            self._begin_failure(
                _FailureText(found[1].removesuffix(":"), is_named=True, is_open=not found[1].endswith(":"))
            )
        elif self._is_over and self._failures and self._failures[-1].is_open:
            failure = self._failures[-1]
            failure.title += _BETWEEN + line.strip().removesuffix(":")
            failure.is_open = not line.rstrip().endswith(":") and len(failure.title) < TEXT
        else:
            return False
        return True

    def _begin_failure(self, failure: _FailureText) -> None:
        if len(self._failures) < _MOST_FAILURES:
            self._failures.append(failure)

    def _take_mark(self, indent: int, text: str, outcome: TestOutcome) -> None:
        later = _LATER.search(text)
        title = _TIME.sub("", text[: later.start()] if later else text).strip()[:_NAME]
        if self._is_over:
            if outcome is FAILED and self._failures and not self._failures[-1].title:
                self._failures[-1].title = title  # of node's runner: it follows the place
                return
            if outcome is FAILED:
                return
            self._is_over = False  # another run
        while self._suites and self._suites[-1][0] > indent:
            self._suites.pop()
        is_end = bool(self._suites) and self._suites[-1] == (indent, title)
        while self._suites and self._suites[-1][0] == indent:
            self._suites.pop()
        if len(self._ended) + len(self.named) <= 2 * MOST_RESULTS and self._chars <= MOST_CHARS:
            name = clip_text(_BETWEEN.join([*(name for _, name in self._suites), title]))
            self._chars += len(name)
            (self._ended if is_end else self.named).append((name, SKIPPED if later else outcome))

    def _take_mocha_mark(self, line: str) -> bool:
        found = None if self._has_arrows else _MOCHA_MARK.match(line)
        if found is not None:
            self._take_mark(len(found[1]), found[3], FAILED if found[2] else SKIPPED)
        return found is not None

    def _take_suite(self, line: str) -> None:
        found = _SUITE.match(line)
        if found is None:
            return
        indent, title = len(found[1]), _TIME.sub("", found[3]).strip()[:_NAME]
        self._is_over = False
        self._has_arrows |= bool(found[2])
        if bool(found[2]) != self._has_arrows or (not found[2] and indent < 2):
            return
        while self._suites and self._suites[-1][0] > indent:
            self._suites.pop()
        if self._suites and self._suites[-1][0] == indent:
            ends = self._suites.pop()[1] == title and found[2]
            if ends:
                return
        if len(self._suites) < _DEEPEST:
            self._suites.append((indent, title))

    def count(self) -> Counter[TestOutcome]:
        """How many ended so, by the sums."""
        counts = Counter({outcome: self.sums[outcome] for outcome in (PASSED, FAILED, SKIPPED)})
        if not self._says_passed and not counts[PASSED]:
            counts[PASSED] = sum(outcome is PASSED for _, outcome in self.named)
        return counts

    def name_failed(self) -> list[tuple[str, _FailureText | None]]:
        """The failed tests, each with what is said of it. Where no line names them, what is said does."""
        failures: dict[str, list[_FailureText]] = {}
        for one in self._failures:
            failures.setdefault(_find_last(one.title), []).append(one)
        found: list[tuple[str, _FailureText | None]] = []
        for name in (name for name, outcome in self.named if outcome is FAILED):
            fitting = failures.get(_find_last(name))
            failure = fitting.pop(0) if fitting else None
            found.append((clip_text(failure.title) if failure is not None and failure.is_named else name, failure))
        known = {name for name, _ in found}
        left = (one for fitting in failures.values() for one in fitting if one.is_named)
        more = {name: one for one in left if (name := clip_text(one.title)) not in known}
        return [*found, *more.items()] if len(found) + len(more) <= self.sums[FAILED] else found


def _find_last(name: str) -> str:
    """The name of a test without its suites. Pure."""
    return clip_text(name.rpartition(_BETWEEN)[2])
