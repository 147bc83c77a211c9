"""What compilers and linters found: SARIF, the JSON of ruff, eslint, mypy and gcc, and the lines that all print.

Guest data, bounded: it decides no verdict. Only errors are taken, for only they end a check. A finding is
named by its file and its rule, without the line: an edit above it moves it and makes no new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from sandbox.checks.collected import clip_text, take_kept
from sandbox.checks.location import find_location
from sandbox.checks.rust_errors import RustErrorReader
from sandbox.models.test_results import TestResult
from sandbox.models.words import TestOutcome

JSON_BYTES = 8 * 1024**2
_JSON_VALUES = 300_000  # each takes up to a hundred bytes of memory
_NO_RULE = "error"
_LINES = (
    re.compile(
        r"(?P<path>[^\s:(][^:()\n]{0,199})\((?P<line>\d{1,7}),\d{1,7}\): error (?P<rule>TS\d{1,6}): (?P<text>.*)"
    ),
    re.compile(
        r"(?P<path>[^\s:][^:\n]{0,199}):(?P<line>\d{1,7}):(?:\d{1,7}:)? (?:fatal )?error: (?P<rule>)(?P<text>.*)$"
    ),
    re.compile(r"(?P<path>[\w./+-]{1,200}\.go):(?P<line>\d{1,7}):\d{1,7}: (?P<text>.*)(?P<rule>)"),
)
_ENDS_WITH_RULE = _LINES[1]
_RULE = re.compile(r" \[-?W?(?:error=)?([\w.+-]{1,60})[^\]]{0,40}\]$")
_RULE_CHARS = 111  # as many as `_RULE` may match, so that it is not tried at each place of a long text
_PATH_CHARS = 4096


class UnreadableReport(ValueError):
    """The file is damaged, or past a limit."""


class OtherDocument(UnreadableReport):
    """JSON that is no report of a kind that is known."""


def read_json(content: bytes, folder: str = ".") -> list[TestResult]:
    """The errors of one file: one JSON value, or one in each line. Raises: UnreadableReport."""
    if sum(map(content.count, (b",", b"[", b"{"))) > _JSON_VALUES or len(content) > JSON_BYTES:
        raise UnreadableReport("too many values")
    try:
        return take_kept(finding for value in _parse_values(content) for finding in _read_value(value, folder))
    except OtherDocument:
        raise
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise UnreadableReport(str(error)[:200]) from error


def read_lines(lines: Iterable[str], folder: str = ".") -> Iterator[TestResult]:
    """The errors that lines of output name, as gcc, clang, go, javac, mypy, rustc and tsc print them."""
    rust = RustErrorReader()
    for line in lines:
        if found := rust.feed(line):
            yield _finding(*found, folder)
        if "error" not in line and ".go:" not in line:
            continue
        match = next(filter(None, (pattern.match(line) for pattern in _LINES)), None)
        if match is not None:
            rule, text = _split_rule(match["text"]) if match.re is _ENDS_WITH_RULE else (match["rule"], match["text"])
            yield _finding(match["path"], match["line"], rule, text, folder)
    if found := rust.finish():
        yield _finding(*found, folder)


def _split_rule(text: str) -> tuple[str, str]:
    """The rule that a message names at its end, '' for none, and the message without it."""
    found = _RULE.search(text[-_RULE_CHARS:])
    return (found[1], text[: -len(found[0])].rstrip(" ")) if found else ("", text)


def _parse_values(content: bytes) -> Iterator[Any]:
    """Yield one value, or that of each line: only one of these is in memory at a time."""
    try:
        yield json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError:
        for line in BytesIO(content):
            if line.strip():
                yield json.loads(line.decode("utf-8-sig"))


def _read_value(value: Any, folder: str) -> Iterator[TestResult]:
    """Raises: UnreadableReport for JSON of another kind; what a lookup raises for one that is not as it should be."""
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        reader = next((read for name, read in _READERS if isinstance(entry, dict) and name in entry), None)
        if reader is None:
            raise OtherDocument("no format that is known")
        yield from reader(entry, folder)


def _read_sarif(log: dict[str, Any], folder: str) -> Iterator[TestResult]:
    for run in log["runs"]:
        for result in run.get("results") or ():
            if result.get("level") != "error":
                continue
            physical = ((result.get("locations") or [{}])[0]).get("physicalLocation", {})
            uri = _as_text(physical.get("artifactLocation", {}).get("uri"))[:_PATH_CHARS]
            path = unquote(uri).removeprefix("file://")
            line = physical.get("region", {}).get("startLine", "")
            yield _finding(path, line, result.get("ruleId"), result.get("message", {}).get("text"), folder)


def _read_eslint(file: dict[str, Any], folder: str) -> Iterator[TestResult]:
    for message in file["messages"]:
        if message.get("severity") == _ESLINT_ERROR:
            yield _finding(file.get("filePath"), message.get("line"), message.get("ruleId"), message["message"], folder)


_ESLINT_ERROR = 2


def _read_ruff(entry: dict[str, Any], folder: str) -> Iterator[TestResult]:
    yield _finding(entry.get("filename"), entry["location"].get("row"), entry.get("code"), entry["message"], folder)


def _read_gcc(entry: dict[str, Any], folder: str) -> Iterator[TestResult]:
    if entry["kind"] in {"error", "fatal error"}:
        caret = ((entry.get("locations") or [{}])[0]).get("caret", {})
        yield _finding(caret.get("file"), caret.get("line"), entry.get("option"), entry["message"], folder)


def _read_mypy(entry: dict[str, Any], folder: str) -> Iterator[TestResult]:
    if entry["severity"] == "error":
        yield _finding(entry.get("file"), entry.get("line"), entry.get("code"), entry["message"], folder)


_READERS: tuple[tuple[str, Callable[[dict[str, Any], str], Iterator[TestResult]]], ...] = (
    ("runs", _read_sarif),
    ("messages", _read_eslint),
    ("location", _read_ruff),
    ("kind", _read_gcc),
    ("severity", _read_mypy),
)
"""By a key that only this format has."""


def _finding(path: Any, line: Any, rule: Any, text: Any, folder: str) -> TestResult:
    """One error. Without a rule its text is part of its name."""
    where, number = find_location("", _as_text(path), _as_text(line), folder)
    message, said = clip_text(_as_text(text)), clip_text(_as_text(rule))
    shown = where or clip_text(_as_text(path))
    return TestResult(
        test=clip_text(f"{shown}: {said or message}"),
        outcome=TestOutcome.FAILED,
        message=message or None,
        path=where,
        line=number,
        rule=said or _NO_RULE,
    )


def _as_text(value: Any) -> str:
    """A string or a number as text, '' for what is neither: a list of eslint's as a path would be spelled out for each
    error of its file.
    """
    return value if isinstance(value, str) else str(value or "") if isinstance(value, int | float) else ""
