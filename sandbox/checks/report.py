"""Summarise the JUnit files in a check's report directory. Guest data: bounded, displayed, never used for a verdict.

Parsed as a stream: a tree of elements takes forty times the memory of its file, and a guest can write twenty files.
The parser itself keeps every distinct name, a record for each open element, and a tag until it is complete: 10 MB of
these took 200 to 330 MB, so each has a limit. A file past one is left out, as one past the limit on bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import XMLParser

from sandbox.checks.location import TEXT, find_location
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Report, TestFailure
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome
from sandbox.policy.paths import RepoPath, show_path
from sandbox.text import neutralise

_FILE_BYTES = 10 * 1024**2
_TOTAL_BYTES = 20 * 1024**2
_FILES = 20
_ELEMENTS = 250_000  # per file; a test case with its names takes more than 40 bytes
_NAMES = 1000  # distinct names of elements and attributes per file; JUnit has about thirty
_DEPTH = 64
_TAG_BYTES = 512 * 1024  # one tag with its attributes, or one comment
_PIECE_BYTES = 64 * 1024  # parsed at once: a tag may exceed its limit by as much
_FAILURES = 50
_TEXT = 500
_SECONDS = re.compile(r"[0-9]+(?:[.][0-9]*)?")

MOST_RESULTS = 20_000
"""How many tests of a run are kept."""


class CollectedResults:
    """The tests of a report, as many as are kept. `complete`: whether all of them are there."""

    MOST_FAILURES = _FAILURES
    _MOST_CHARS = 8 * 1024**2  # of all names, messages and paths

    def __init__(self) -> None:
        self.results: list[TestResult] = []
        self.complete = True
        self._chars = 0

    def add(self, result: TestResult) -> None:
        """Keep a result, as long as there is room."""
        self._chars += len(result.test) + len(result.message or "") + len(result.path or "")
        if len(self.results) < MOST_RESULTS and self._chars <= self._MOST_CHARS:
            self.results.append(result)
        else:
            self.complete = False


def read_report(folder: Path, cwd: str = ".", results: CollectedResults | None = None) -> Report | None:
    """Return the sum of all JUnit files `*.xml` in the folder; None when none is usable. `cwd`: where the check ran.

    `results`: gets each of their tests.
    """
    results = results or CollectedResults()
    counts: Counter[str] = Counter()
    failed: list[TestFailure] = []
    usable = False
    with WorktreeFiles(folder) as files:
        for entry in _xml_files(files):
            parsed = _parse(files, entry, cwd)
            if parsed is not None and parsed.suites:
                usable = True
                counts += parsed.counts
                failed += parsed.failed
                for result in parsed.results:
                    results.add(result)
            results.complete &= parsed is not None
    return Report(**{name: counts[name] for name in _COUNTS}, failed=tuple(failed[:_FAILURES])) if usable else None


_COUNTS = ("tests", "failures", "errors", "skipped")


def _xml_files(files: WorktreeFiles) -> list[WalkEntry]:
    try:
        reports = [e for e in files.walk(lambda _: True) if e.kind is EntryKind.FILE and e.path.endswith(b".xml")]
    except SandboxError:
        return []
    chosen, left = [], _TOTAL_BYTES
    for entry in reports[:_FILES]:
        if entry.size <= min(left, _FILE_BYTES):
            chosen.append(entry)
            left -= entry.size
    return chosen


def _parse(files: WorktreeFiles, entry: WalkEntry, cwd: str) -> _JUnitCollector | None:
    collector = _JUnitCollector(cwd)
    try:
        parser = XMLParser(target=collector, forbid_dtd=True)
        with closing(files.stream(RepoPath(show_path(entry.path)), _FILE_BYTES)) as chunks:
            _feed(parser, chunks)
        parser.close()
    except (SandboxError, ParseError, DefusedXmlException, LookupError, ValueError):  # LookupError: encoding
        return None
    return collector


def _feed(parser: XMLParser, chunks: Iterable[bytes]) -> None:
    """Raises: `quota_exceeded` if a tag is too long; the parser holds it until it is complete."""
    fed = 0
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE_BYTES):
            piece = chunk[start : start + _PIECE_BYTES]
            parser.feed(piece)
            fed += len(piece)
            if fed - parser.parser.CurrentByteIndex > _TAG_BYTES:
                raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "The report has a tag that is too long")


_CASE_DEPTH = 2  # of a case that is directly in `testsuites`
_OUTCOME_OF = {"failure": TestOutcome.FAILED, "error": TestOutcome.ERROR, "skipped": TestOutcome.SKIPPED}
_OUTCOMES = {"failure": "failures", "error": "errors", "skipped": "skipped"}


class _JUnitCollector:
    """Parser target that collects counts and failures of the suites at the top, or directly in `testsuites`.

    `node --test` writes cases there too, without a suite around them: they are counted one by one.
    """

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self.suites = 0
        self.counts: Counter[str] = Counter()
        self.failed: list[TestFailure] = []
        self.results: list[TestResult] = []
        self._outcome = TestOutcome.PASSED
        self._elements = 0
        self._names: set[str] = set()
        self._depth = 0
        self._suite_depth = 0
        self._case: dict[str, str] | None = None
        self._message = ""
        self._pieces: list[str] = []
        self._size = 0
        self._collecting = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Raises: `quota_exceeded` past the limits on elements, names and depth."""
        self._count(tag, attributes)
        if self._depth == 1:
            self._suite_depth = {"testsuite": 1, "testsuites": 2}.get(tag, 0)
        if tag == "testsuite" and self._depth == self._suite_depth:
            self.suites += 1
            self.counts.update({name: _parse_count(attributes.get(name, "0")) for name in _COUNTS})
        elif tag == "testcase":
            self._case, self._outcome = attributes, TestOutcome.PASSED
            if self._suite_depth == self._depth == _CASE_DEPTH:
                self.suites += 1
                self.counts["tests"] += 1
        elif tag in _OUTCOMES and self._suite_depth == _CASE_DEPTH == self._depth - 1 and self._case is not None:
            self.counts[_OUTCOMES[tag]] += 1
        if tag in _OUTCOME_OF and self._case is not None and self._outcome is TestOutcome.PASSED:
            self._outcome = _OUTCOME_OF[tag]
        if tag in {"failure", "error"} and self._case is not None:
            self._message = attributes.get("message", "")
            self._pieces, self._size = [], 0
            self._collecting = len(self.failed) < _FAILURES

    def _count(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        self._names.update(attributes, (tag,))
        if self._elements > _ELEMENTS or self._depth > _DEPTH or len(self._names) > _NAMES:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "The report has too many elements, names or levels")

    def data(self, text: str) -> None:
        """Keep the beginning and the end of a failure's text."""
        if not self._collecting:
            return
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 4 * TEXT:
            whole = "".join(self._pieces)
            self._pieces = [whole[:_TEXT], whole[-TEXT:]]
            self._size = _TEXT + TEXT

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testcase":
            if self._case is not None:
                self._keep(self._case)
            self._case = None
        elif tag in {"failure", "error"} and self._case is not None:
            one = None
            if self._collecting:
                one = _failure(self._case, self._message, "".join(self._pieces), self._cwd)
                self.failed.append(one)
            self._keep(self._case, one)
            self._case, self._collecting = None, False  # one failure per case

    def _keep(self, case: dict[str, str], failure: TestFailure | None = None) -> None:
        if len(self.results) > MOST_RESULTS:
            return
        message = failure.message if failure else None
        if self._outcome in {TestOutcome.FAILED, TestOutcome.ERROR} and failure is None:
            message = clip_text(self._message) or None
        self.results.append(
            TestResult(
                test=failure.name if failure else _name_case(case),
                outcome=self._outcome,
                time_s=_parse_time(case.get("time", "")),
                message=message,
                path=failure.path if failure else None,
                line=failure.line if failure else None,
            )
        )

    def close(self) -> None:
        """Required by the parser; there is no resource to close."""


def _failure(case: dict[str, str], message: str, text: str, cwd: str) -> TestFailure:
    path, line = find_location(text or message, case.get("file", ""), case.get("line", ""), cwd)
    return TestFailure(name=_name_case(case), message=clip_text(message or text), path=path, line=line)


def _name_case(case: dict[str, str]) -> str:
    return clip_text(f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::"))


def _parse_time(text: str) -> float | None:
    """Seconds; None for what is no plain number."""
    return float(text) if len(text) < 20 and _SECONDS.fullmatch(text) else None


def clip_text(text: str) -> str:
    """The beginning of a text of the guest, safe to show."""
    return neutralise(text[: 4 * _TEXT])[:_TEXT]


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
