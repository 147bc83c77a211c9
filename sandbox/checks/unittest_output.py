"""Tests from what runners of unittest print for people: its text runner, also of Django, zope-testrunner; of trial only
the sums. Guest data.

A run ends with a closing block: a rule, `Ran N tests in S s`, an empty line, and what became of them. Blocks of several
runs are added. A test may print one, too: of a runner that it tests. The last block of an output always counts, an
earlier one not if it stands within a run: there are more marks of tests before it than it counts, or the line after it
ends the line of a test. zope-testrunner prints a line for each layer of tests, and a total if there are several.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from sandbox.checks.collected import MOST_CHARS, MOST_RESULTS
from sandbox.checks.printed_tests import NamedTest, choose_named
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

PASSED, FAILED, ERROR, SKIPPED = TestOutcome.PASSED, TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.SKIPPED
_HEADS_RULE, _RULE, _RULE_OF_TRIAL = "=" * 70, "-" * 70, "-" * 79
_RAN = re.compile(r"Ran (\d{1,9}) tests? in \d{1,9}\.\d{3}s")
_HEAD = re.compile(r"(FAIL|ERROR|UNEXPECTED SUCCESS): (\S.{0,499})")
_MARKS = re.compile(r"[.FEsxu]+")
_END_OF_LINE = re.compile(r"ok|FAIL|ERROR|expected failure|unexpected success|skipped ['\"].*")
_ZOPE_SUM = re.compile(
    r"(  Ran|Total:) (\d{1,9}) tests(?: with|,) (\d{1,9}) failures, (\d{1,9}) errors and (\d{1,9}) skipped in \d"
)
_ZOPE_HEAD = re.compile(r"(Failure|Error) in test (\S.{0,499})")
_FRAME = re.compile(r'  File "([^"]{1,300})", line (\d{1,7})\b')
_MESSAGE = 1000
_ELSEWHERE = ("/usr/", "/tmp/", "/sandbox-layers/", "<")  # noqa: S108 -- places of frames, which are not opened
_OUTCOMES = {
    **dict.fromkeys(("failures", "unexpected successes", "unexpectedSuccesses"), FAILED),
    "errors": ERROR,
    **dict.fromkeys(("skipped", "skips", "todos", "expected failures", "expectedFailures"), SKIPPED),
    "successes": PASSED,
}
_PART = rf"(?:{'|'.join(_OUTCOMES)})=\d{{1,9}}"
_RESULT = re.compile(rf"(?:OK|PASSED|FAILED|NO TESTS RAN)(?: \(({_PART}(?:, {_PART}){{0,7}})\))?")
_OUTCOMES_OF_HEADS = {"FAIL": FAILED, "UNEXPECTED SUCCESS": FAILED, "ERROR": ERROR, "Failure": FAILED, "Error": ERROR}

_Sums = Counter[TestOutcome]


class UnittestReader:
    """Reads the lines of one or more streams. `unnamed`: how many tests the sums count beside those that it yields."""

    def __init__(self, folder: str = ".") -> None:
        """`folder`: where the program ran."""
        self._folder = folder
        self.unnamed: _Sums = Counter()

    def read(self, lines: Iterable[str]) -> Iterator[TestResult]:
        """Yield the tests that failed, as far as their names are known; none where no run came to its end."""
        found = _UnittestOutput()
        for line in lines:
            found.take(line)
        kept, unnamed = choose_named(*found.sum_up())
        self.unnamed += unnamed
        yield from (one.to_result(self._folder) for one in kept)


@dataclass
class _Failure:
    """A test that a head names. `is_traced`: frames of a traceback have just been read: an error is next."""

    name: str
    outcome: TestOutcome
    message: str = ""
    place: tuple[str, str] = ("", "")
    is_traced: bool = False

    def take(self, line: str) -> None:
        """The next line of what is said of it: the last error counts, and the last place in the tree."""
        if frame := _FRAME.match(line):
            self.is_traced = True
            if not frame[1].startswith(_ELSEWHERE):
                self.place = frame[1], frame[2]
        elif line and not line.startswith(" ") and (self.is_traced or not self.message):
            self.message, self.is_traced = line[:_MESSAGE], False

    def to_named(self) -> NamedTest:
        return NamedTest(self.name, self.outcome, self.message, place=self.place)


@dataclass
class _ClosingBlock:
    """What a closing block says, and the failures since the one before. `is_within`: perhaps a test printed it."""

    sums: _Sums = field(default_factory=Counter)
    failures: list[_Failure] = field(default_factory=list)
    is_within: bool = False


class _Awaited(Enum):
    """The line of a closing block that is next."""

    RULE = auto()
    RAN = auto()
    EMPTY = auto()
    RESULT = auto()


class _UnittestOutput:
    """What one stream says so far."""

    def __init__(self) -> None:
        self._sums: _Sums = Counter()
        self._layers: _Sums = Counter()  # of zope-testrunner, until it says their total
        self._named: list[_Failure] = []
        self._last = _ClosingBlock()  # the next one shows whether it counts
        self._failures: list[_Failure] = []
        self._kept = self._chars = self._marks = self._ran = 0
        self._awaited = _Awaited.RULE
        self._is_head_next = self._is_after_block = False

    def take(self, line: str) -> None:
        """Read the next line."""
        if not (line or self._is_expected):  # millions of empty lines take their time otherwise
            return
        if self._take_block(line) or self._take_layer(line) or self._take_head(line):
            return
        if _MARKS.fullmatch(line):
            self._marks += len(line)
        elif self._failures:
            self._failures[-1].take(line)

    @property
    def _is_expected(self) -> bool:
        """Whether an empty line would say something."""
        return self._awaited is not _Awaited.RULE or self._is_head_next or self._is_after_block

    def sum_up(self) -> tuple[list[NamedTest], _Sums]:
        """The failed tests with their names, and the sums of all."""
        self._last.is_within = False
        self._count_last()
        return [one.to_named() for one in self._named], self._sums + self._layers

    def _take_block(self, line: str) -> bool:
        awaited, self._awaited = self._awaited, _Awaited.RULE
        self._last.is_within |= self._is_after_block and _END_OF_LINE.fullmatch(line) is not None
        self._is_after_block = False
        if line in (_HEADS_RULE, _RULE, _RULE_OF_TRIAL):
            self._is_head_next = line == _HEADS_RULE
            self._awaited = _Awaited.RULE if self._is_head_next else _Awaited.RAN
        elif awaited is _Awaited.RAN and (found := _RAN.fullmatch(line)):
            self._ran, self._awaited = int(found[1]), _Awaited.EMPTY
        elif awaited is _Awaited.EMPTY and not line:
            self._awaited = _Awaited.RESULT
        elif awaited is _Awaited.RESULT and (found := _RESULT.fullmatch(line)):
            self._end_block(found[1])
        else:
            return False
        return True

    def _end_block(self, parts: str | None) -> None:
        self._count_last()
        sums: _Sums = Counter()
        for word, _, number in (part.partition("=") for part in (parts or "").split(", ") if part):
            sums[_OUTCOMES[word]] += int(number)
        del sums[PASSED]  # only trial says it
        other = sums.total()  # parts of tests that failed are counted, too, and have marks: it may be more than ran
        sums[PASSED] = max(self._ran - other, 0)
        self._last = _ClosingBlock(sums, self._failures, is_within=self._marks > self._ran + other)
        self._failures, self._marks, self._is_after_block = [], 0, True

    def _count_last(self) -> None:
        if not self._last.is_within:
            self._sums += self._last.sums
            self._named += self._last.failures

    def _take_layer(self, line: str) -> bool:
        found = _ZOPE_SUM.match(line)
        if found is None:
            return False
        ran, failed, wrong, skipped = map(int, found.groups()[1:])
        counted = {PASSED: max(ran - failed - wrong - skipped, 0), FAILED: failed, ERROR: wrong, SKIPPED: skipped}
        if found[1] == "Total:":
            self._sums += Counter(counted)
            self._layers.clear()
        else:
            self._layers += Counter(counted)
            self._named += self._failures
            self._failures = []
        return True

    def _take_head(self, line: str) -> bool:
        found = (_HEAD.match(line) if self._is_head_next else None) or _ZOPE_HEAD.match(line)
        self._is_head_next = found is not None and found[1] == "UNEXPECTED SUCCESS"  # they have one rule together
        if found is None:
            return False
        if self._kept < MOST_RESULTS and self._chars <= MOST_CHARS:
            self._kept += 1
            self._chars += len(found[2]) + (len(self._failures[-1].message) if self._failures else 0)
            self._failures.append(_Failure(found[2], _OUTCOMES_OF_HEADS[found[1]]))
        return True
