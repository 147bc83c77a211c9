"""Tests in TAP, the Test Anything Protocol, version 12 to 14: of a file, or of a program's output. Guest data.

Only lines at the left margin are tests: what is indented is part of one. A test that failed as expected (`# TODO`) is
skipped. The plan says how many there are: with fewer, or after `Bail out!`, the results are not complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sandbox.checks.collected import clip_text
from sandbox.checks.location import TEXT, find_location
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

_TEST = re.compile(r"(not )?ok\b[ \t]*(\d{0,9})[ \t]*(?:- ?)?(.*)")
_PLAN = re.compile(r"1\.\.(\d{1,9})(?:[ \t]*#.*)?$")
_DIRECTIVE = re.compile(r"(?:^|[ \t])#[ \t]*(skip|todo)\b", re.IGNORECASE)
_AT = re.compile(r"(?:at|#\s+at) (\S{1,200}) line (\d{1,7})")
_FAILED_TEST = re.compile(r"Failed test\b")


class TapReader:
    """Reads lines. `complete`: whether the plan was kept, after the last line."""

    def __init__(self, name: str = "", folder: str = ".") -> None:
        """`name`: of the program, which stands before each test. `folder`: where it ran."""
        self._name, self._folder = name, folder
        self._planned: int | None = None
        self._seen = 0
        self._bailed = False

    @property
    def complete(self) -> bool:
        return not self._bailed and (self._planned is None or self._seen >= self._planned)

    def read(self, lines: Iterable[str]) -> Iterator[TestResult]:
        """Yield the tests."""
        current: tuple[str, TestOutcome] | None = None
        said, size = list[str](), 0
        for line in (line.rstrip("\r\n") for line in lines):
            found = _TEST.match(line)
            if found is None:
                self._note(line)
                if size < TEXT and current is not None and current[1] is TestOutcome.FAILED:
                    said.append(line[:TEXT])
                    size += len(line) + 1
                continue
            if current is not None:
                yield self._finish(current, said)
            self._seen += 1
            current, said, size = self._begin(found), [], 0
        if current is not None:
            yield self._finish(current, said)

    def _note(self, line: str) -> None:
        if plan := _PLAN.match(line):
            self._planned = int(plan[1])
        self._bailed |= line.startswith("Bail out!")

    def _begin(self, found: re.Match[str]) -> tuple[str, TestOutcome]:
        failed, number, text = found.groups()
        directive = _DIRECTIVE.search(text)
        title = (text[: directive.start()] if directive else text).strip() or number or str(self._seen)
        name = clip_text(f"{self._name}: {title}" if self._name else title)
        if directive and (failed or directive[1].lower() == "skip"):
            return name, TestOutcome.SKIPPED
        return name, TestOutcome.FAILED if failed else TestOutcome.PASSED

    def _finish(self, test: tuple[str, TestOutcome], said: list[str]) -> TestResult:
        name, outcome = test
        if outcome is not TestOutcome.FAILED:
            return TestResult(test=name, outcome=outcome)
        text = "\n".join(said)
        place = _AT.search(text)
        file, number = (place[1], place[2]) if place else ("", "")
        path, line = find_location("" if place else text, file, number, self._folder)
        first = next((line.strip(" #") for line in said if not _is_noise(line)), "")
        return TestResult(test=name, outcome=outcome, message=clip_text(first) or None, path=path, line=line)


def _is_noise(line: str) -> bool:
    """Whether a line below a failed test does not say why it failed."""
    text = line.strip().removeprefix("#").strip()
    return (
        text in {"", "---", "..."} or text.startswith(("duration_ms:", "type:")) or _FAILED_TEST.match(text) is not None
    )
