"""Summarise the JUnit files in a check's report directory. Guest data: bounded, displayed, never used for a verdict.

Parsed as a stream: a tree of elements takes forty times the memory of its file, and a guest can write twenty files.
The parser itself keeps every distinct name, a record for each open element, and a tag until it is complete: 10 MB of
these took 200 to 330 MB, so each has a limit. A file past one is left out, as one past the limit on bytes.
"""

from __future__ import annotations

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


def read_report(folder: Path, cwd: str = ".") -> Report | None:
    """Return the sum of all JUnit files `*.xml` in the folder; None when none is usable. `cwd`: where the check ran."""
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
            self._case = attributes
            if self._suite_depth == self._depth == _CASE_DEPTH:
                self.suites += 1
                self.counts["tests"] += 1
        elif tag in _OUTCOMES and self._suite_depth == _CASE_DEPTH == self._depth - 1 and self._case is not None:
            self.counts[_OUTCOMES[tag]] += 1
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
            self._case = None
        elif tag in {"failure", "error"} and self._case is not None:
            if self._collecting:
                self.failed.append(_failure(self._case, self._message, "".join(self._pieces), self._cwd))
            self._case, self._collecting = None, False  # one failure per case

    def close(self) -> None:
        """Required by the parser; there is no resource to close."""


def _failure(case: dict[str, str], message: str, text: str, cwd: str) -> TestFailure:
    name = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
    path, line = find_location(text or message, case.get("file", ""), case.get("line", ""), cwd)
    return TestFailure(name=_clip(name), message=_clip(message or text), path=path, line=line)


def _clip(text: str) -> str:
    return neutralise(text[: 4 * _TEXT])[:_TEXT]


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
