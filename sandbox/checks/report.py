"""Summarise the reports in a check's report directory. Guest data: bounded, displayed, never used for a verdict.

`*.xml` is JUnit, `*.tap` and `*.t` are TAP (tap.py), `*.sarif`, `*.json` and `*.jsonl` are what compilers and linters
found (diagnostics.py). JUnit is parsed as a stream: a tree of elements takes forty times the memory of its file, and a
guest can write many files. The parser itself keeps every distinct name, a record for each open element, and a tag until
it is complete: 10 MB of these took 200 to 330 MB, so each has a limit. A file past one is left out, as one past the
limit on bytes; the results say so, since a test of it may have failed. What is left, 70 MB for the worst two files, is
reserved (reading_memory.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException, DTDForbidden
from defusedxml.ElementTree import XMLParser

from sandbox.byte_sizes import format_bytes
from sandbox.checks import diagnostics
from sandbox.checks.cause import FILE_FAILED
from sandbox.checks.collected import MOST_FAILURES, MOST_RESULTS, CollectedResults, ReportSum, clip_text, take_kept
from sandbox.checks.location import TEXT, find_location
from sandbox.checks.output_lines import READING_S, ReadingTime, read_beginnings
from sandbox.checks.reading_memory import MOST_BYTES, TAP_FACTOR, reserve_for_reading
from sandbox.checks.tap import TapReader
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Report
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome
from sandbox.policy.paths import RepoPath, show_path
from sandbox.text import one_line

_FILE_BYTES = 10 * 1024**2
_TOTAL_BYTES = 20 * 1024**2
_DEPTH_OF_FOLDERS = 3  # perl writes t/name.t
FOLDER_NAMES = 20_000  # in all; tools write pages of coverage beside their report
_FILES = 2_000  # Surefire and Gradle write one for each class, perl for each script; 0.1 ms of CPU each
_ELEMENTS = 250_000  # per file; a test case with its names takes more than 40 bytes
_NAMES = 1000  # distinct names of elements and attributes per file; JUnit has about thirty
_DEPTH = 64
_TAG_BYTES = 512 * 1024  # one tag with its attributes, or one comment
_SMALL_BYTES = 256 * 1024
_FACTOR = 64  # bytes that are kept for each byte of a small file; measured: 59 for `<testcase/>`
_PIECE_BYTES = 64 * 1024  # parsed at once: a tag may exceed its limit by as much
_TEXT = 500
_NAMED_FILES = 3  # that were left out, in a note
_NAME_CHARS, _WHY_CHARS = 80, 120
_FORBIDDEN = bytes(set(range(32)) - set(b"\t\n\r"))  # https://www.w3.org/TR/xml/#charsets
_WITHOUT_FORBIDDEN = bytes.maketrans(_FORBIDDEN, b"?" * len(_FORBIDDEN))
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_SECONDS = re.compile(r"[0-9]+(?:[.][0-9]*)?")


def read_report(folder: Path, cwd: str = ".", results: CollectedResults | None = None) -> Report | None:
    """Return the sum of all reports in the folder; None when none is usable. `cwd`: where the check ran.

    `results`: gets each of their tests. A file that is left out makes them incomplete, and is named in their note.
    """
    results = results or CollectedResults()
    total, usable, left = ReportSum(), False, ReadingTime()
    with WorktreeFiles(folder) as files:
        chosen, left_out = _choose_files(files)
        with reserve_for_reading(_estimate_bytes(chosen)):
            for entry in chosen:
                if left.look():
                    results.cut_off(f"its reports were not read to their end: that takes more than {READING_S:g} s")
                    break
                try:
                    usable |= _parse(files, entry, cwd).add_to(total, results)
                except _LeftOutError as error:
                    left_out.append(_name_left_out(entry, str(error)))
    if left_out:
        more = [f"and {len(left_out) - _NAMED_FILES} more"] if len(left_out) > _NAMED_FILES else []
        named = ", ".join([*left_out[:_NAMED_FILES], *more])
        results.cut_off(f"tests may be missing: these files of /report were not read: {named}")
    return total.to_report() if usable else None


class _LeftOutError(Exception):
    """A file is not read; the message says why."""


def _name_left_out(entry: WalkEntry, why: str) -> str:
    return one_line(f"{show_path(entry.path)[:_NAME_CHARS]} ({why[:_WHY_CHARS]})")


def _estimate_bytes(chosen: Sequence[WalkEntry]) -> int:
    """What reading these files takes at most. Pure."""
    if sum(entry.size for entry in chosen) > _SMALL_BYTES:
        return MOST_BYTES
    factors = ((entry.size, TAP_FACTOR if entry.path.endswith(_TAP) else _FACTOR) for entry in chosen)
    return sum(size * factor for size, factor in factors)


@dataclass(frozen=True)
class _Parsed:
    """One file. `counts`: what the file says of itself, if it does; `failed`: with them. `of_tests`: also if it has
    none, which is not the same as no errors of a compiler.
    """

    results: Sequence[TestResult]
    usable: bool = True
    complete: bool = True
    counts: Counter[str] | None = None
    of_tests: bool = True

    def add_to(self, total: ReportSum, results: CollectedResults) -> bool:
        """Whether it is usable. A report's own counts go before those of its tests: it may have more than are kept, and
        may have the case of a repeated test twice. But no fewer tests failed than have failed cases.
        """
        results.complete &= self.complete
        if not self.usable:
            return False
        counts = Counter(total.counts)
        total.add(self.results)
        if self.counts:
            total.counts = counts + _correct_counts(self.counts, total.counts - counts)
        total.only_rules &= not self.of_tests
        for result in self.results:
            results.add(result)
        return True


def _correct_counts(own: Counter[str], counted: Counter[str]) -> Counter[str]:
    """The counts of a file, with the failures of its cases if it leaves some out and no case is there twice."""
    failed = sum(own[name] for name in _FAILED)
    if counted["tests"] > own["tests"] or sum(counted[name] for name in _FAILED) <= failed:
        return own
    return own | Counter({name: counted[name] for name in _FAILED})


_FAILED = ("failures", "errors")
_COUNTS = ("tests", "failures", "errors", "skipped")
_TAP = (b".tap", b".t")
_SUFFIXES = (b".xml", *_TAP, b".sarif", b".json", b".jsonl")


def _choose_files(files: WorktreeFiles) -> tuple[list[WalkEntry], list[str]]:
    """The files to read, and those that are left out."""
    try:
        entries = files.walk(lambda folder: folder.count(b"/") >= _DEPTH_OF_FOLDERS, WalkLimits(entries=FOLDER_NAMES))
        reports = [e for e in entries if e.kind is EntryKind.FILE and e.path.endswith(_SUFFIXES)]
    except SandboxError as error:
        return [], [one_line(f"all ({error.brief[:_WHY_CHARS]})")]
    chosen, left_out, left = list[WalkEntry](), list[str](), _TOTAL_BYTES
    for entry in reports:
        if len(chosen) == _FILES:
            left_out.append(_name_left_out(entry, f"{_FILES} others were"))
        elif entry.size > _FILE_BYTES:
            left_out.append(_name_left_out(entry, f"more than {format_bytes(_FILE_BYTES)}"))
        elif entry.size > left:
            left_out.append(_name_left_out(entry, f"more than {format_bytes(_TOTAL_BYTES)} with the others"))
        else:
            chosen.append(entry)
            left -= entry.size
    return chosen, left_out


def _parse(files: WorktreeFiles, entry: WalkEntry, cwd: str) -> _Parsed:
    """Raises: _LeftOutError."""
    try:
        if entry.path.endswith(b".xml"):
            return _parse_junit(files, entry, cwd)
        content = b"".join(files.stream(RepoPath(show_path(entry.path)), _FILE_BYTES))
        if entry.path.endswith(_TAP):
            reader = TapReader(show_path(entry.path).removesuffix(".tap"), cwd)
            lines = read_beginnings(TextIOWrapper(BytesIO(content), "utf-8", "replace"))
            found = take_kept(reader.read(lines))
            return _Parsed(found, usable=bool(found), complete=reader.complete)
        return _Parsed(diagnostics.read_json(content, cwd), of_tests=False)
    except diagnostics.OtherDocument:  # such as coverage
        return _Parsed((), usable=False)
    except SandboxError as error:
        raise _LeftOutError(error.brief) from error
    except diagnostics.UnreadableReport as error:
        raise _LeftOutError(str(error)) from error


def _parse_junit(files: WorktreeFiles, entry: WalkEntry, cwd: str) -> _Parsed:
    """Raises: _LeftOutError; SandboxError past a limit."""
    collector = _JUnitCollector(cwd)
    try:
        parser = XMLParser(target=collector, forbid_dtd=True)
        with closing(files.stream(RepoPath(show_path(entry.path)), _FILE_BYTES)) as chunks:
            _feed(parser, chunks)
        parser.close()
    except DTDForbidden as error:
        if error.name == "coverage":  # Cobertura, which has no tests
            return _Parsed((), usable=False)
        raise _LeftOutError("it has a document type") from error
    except (ParseError, DefusedXmlException, LookupError, ValueError) as error:  # LookupError: encoding
        raise _LeftOutError("it is no XML that can be read to its end") from error
    counts = collector.counts if collector.counts["tests"] else None
    return _Parsed(collector.results, usable=collector.suites > 0 or collector.is_empty, counts=counts)


def _feed(parser: XMLParser, chunks: Iterable[bytes]) -> None:
    """Characters that XML forbids, such as a backspace that a test printed, are replaced: Meson and others write them,
    and the parser would refuse the whole file. Raises: `quota_exceeded` if a tag is too long; the parser holds it until
    it is complete.
    """
    fed = 0
    table: bytes | None = _WITHOUT_FORBIDDEN
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE_BYTES):
            piece = chunk[start : start + _PIECE_BYTES]
            if fed == 0 and (piece[:2] in _WIDE or b"\0" in piece[:2]):  # UTF-16, where such bytes are halves
                table = None
            parser.feed(piece.translate(table))
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
        self.is_empty = False  # `testsuites` without anything: `node --test` found no test
        self.counts: Counter[str] = Counter()
        self.results: list[TestResult] = []
        self._outcome = TestOutcome.PASSED
        self._elements = 0
        self._names: set[str] = set()
        self._depth = 0
        self._suite_depth = 0
        self._case: dict[str, str] | None = None
        self._failures = 0
        self._forget_case()

    def _forget_case(self) -> None:
        self._case = None
        self._outcome = TestOutcome.PASSED
        self._message = self._text = ""
        self._failed = self._collecting = False
        self._pieces: list[str] = []
        self._size = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Raises: `quota_exceeded` past the limits on elements, names and depth."""
        self._count(tag, attributes)
        if self._depth == 1:
            self._suite_depth = {"testsuite": 1, "testsuites": 2}.get(tag, 0)
            self.is_empty = tag == "testsuites"
        else:
            self.is_empty = False
        if tag == "testsuite" and self._depth == self._suite_depth:
            self.suites += 1
            self.counts.update({name: _parse_count(attributes.get(name, "0")) for name in _COUNTS})
        elif tag == "testcase":
            self._forget_case()
            self._case = attributes
            if self._suite_depth == self._depth == _CASE_DEPTH:
                self.suites += 1
                self.counts["tests"] += 1
        elif tag in _OUTCOMES and self._suite_depth == _CASE_DEPTH == self._depth - 1 and self._case is not None:
            self.counts[_OUTCOMES[tag]] += 1
        if tag in _OUTCOME_OF and self._case is not None and self._outcome is TestOutcome.PASSED:
            self._outcome = _OUTCOME_OF[tag]
        if self._case is None:
            return
        if tag in {"failure", "error"} and not self._failed:  # one failure per case
            self._failed, self._message = True, attributes.get("message", "")
            self._failures += 1
            self._collecting = self._failures <= MOST_FAILURES
        elif tag == "system-out" and self._failed and not self._text:  # ctest says there what the test printed
            self._collecting = self._failures <= MOST_FAILURES

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
        if self._collecting and tag in {"failure", "error", "system-out"}:
            self._text, self._collecting = "".join(self._pieces), False
            self._pieces, self._size = [], 0
        elif tag == "testcase":
            if self._case is not None and len(self.results) <= MOST_RESULTS:
                self.results.append(self._describe(self._case))
            self._forget_case()

    def _describe(self, case: dict[str, str]) -> TestResult:
        name, time_s = _name_case(case), _parse_time(case.get("time", ""))
        if not self._failed:
            return TestResult(test=name, outcome=self._outcome, time_s=time_s)
        text = self._text
        path, line = None, None
        if self._failures <= MOST_FAILURES:
            path, line = find_location(text or self._message, case.get("file", ""), case.get("line", ""), self._cwd)
        message = _choose_message(self._message, text)
        return TestResult(
            test=name, outcome=self._outcome, time_s=time_s, message=message or None, path=path, line=line
        )

    def close(self) -> None:
        """Required by the parser; there is no resource to close."""


_SAYS_NOTHING = frozenset({"", "failed", "test failed", "error"})
_TELLING = re.compile(r"\b(?:assert\w*|error|expected|fail(?:ed|ure)?|panic\w*|want|got)\b", re.IGNORECASE)


_FAILED_AS_A_FILE = re.compile(r"\[Error: test failed\] \{[^}]{0,300}\bexitCode: (?:\d{1,3}|null)\b")
"""What `node --test` says of a file that ended with an error of its own, such as one thrown as it was loaded."""


def _choose_message(message: str, text: str) -> str:
    """What a failure says: its message; if that is only that it failed, what its text says best."""
    if message.strip().lower() not in _SAYS_NOTHING:
        return clip_text(message)
    if _FAILED_AS_A_FILE.match(text.lstrip()):
        return FILE_FAILED
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("=== ", "--- FAIL"))]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:]
    return clip_text("\n".join(telling[:3])) or clip_text(message)


def _name_case(case: dict[str, str]) -> str:
    return clip_text(f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::"))


def _parse_time(text: str) -> float | None:
    """Seconds; None for what is no plain number."""
    return float(text) if len(text) < 20 and _SECONDS.fullmatch(text) else None


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
