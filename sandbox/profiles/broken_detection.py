"""Which repositories a profile is for, as far as its broken file says it.

A repository that such a file would be detected for must not run the checks of another profile. So each table is read by
itself; of one with a mistake, only the names of files. That can match more repositories than the file meant: those are
refused with its error. What is read here is never run.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

UNKNOWN_PRIORITY = 1_000_000
"""Of a file in which the priority cannot be read: before all others, so that no other profile is used instead."""

_KINDS = ("all", "any")
_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
_OF_DETECTION = re.compile(r'^\s*\[+[\s"\']*detect\b[\s"\']*\.?[\s"\']*(\w*)')
_DETECTION_IN_TOP = re.compile(r'^[ \t]*"?detect\b.*$', re.MULTILINE)
_PRIORITY = re.compile(r"^[ \t]*\"?priority\b(.*)$", re.MULTILINE)
_WHOLE_NUMBER = re.compile(r'^"?[ \t]*=[ \t]*([0-9]{1,6})[ \t]*(#.*)?$')
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_FILE = re.compile(r"\bfile[\"']?\s*[=:](?:\s*[\"']([^\"'\n]{1,200})|[ \t]*([^\s\"'#,{}\[\]]{1,200}))")


def read_detection(text: str) -> dict[str, Any]:
    """`priority` and `detect` of a text that is no TOML."""
    starts = [0, *(match.start() for match in _HEADER.finditer(text))]
    blocks = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    detect: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
    for block in (*_DETECTION_IN_TOP.findall(blocks[0]), *blocks[1:]):
        for kind, marker in _read_block(block):
            detect[kind].append(marker)
    return simplify_detection({"priority": _read_priority(blocks[0]), "detect": detect})


def simplify_detection(document: Mapping[str, Any]) -> dict[str, Any]:
    """`priority` and `detect` of a document, without what is wrong in them: a marker is then its file alone."""
    priority = document.get("priority", 10)
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    found = document.get("detect")
    tables = found if isinstance(found, Mapping) else {}
    return {
        "priority": priority if is_number else UNKNOWN_PRIORITY,
        "detect": {
            "all": [{**marker, "priority": None} for marker in _simplify_markers(tables.get("all"))],
            "any": list(_simplify_markers(tables.get("any"))),
        },
    }


def _read_block(block: str) -> Iterator[tuple[str, dict[str, Any]]]:
    header = _OF_DETECTION.match(block)
    if header is None and not _DETECTION_IN_TOP.match(block):
        return
    with suppress(ValueError, RecursionError):  # no TOML, a number of thousands of digits, or brackets in brackets
        tables = simplify_detection(tomllib.loads(block))["detect"]
        yield from ((kind, marker) for kind in _KINDS for marker in tables[kind])
        return
    kind = "all" if header is not None and header[1] == "all" else "any"
    yield from ((kind, {"file": quoted or bare}) for quoted, bare in _FILE.findall(_COMMENT.sub("", block)))


def _read_priority(top: str) -> int | None:
    found = _PRIORITY.search(top)
    if found is None:
        return 10
    number = _WHOLE_NUMBER.match(found[1].rstrip())
    return int(number[1]) if number else None


def _simplify_markers(markers: object) -> Iterator[dict[str, Any]]:
    for marker in markers if isinstance(markers, list | tuple) else ():
        if isinstance(marker, Mapping) and isinstance(marker.get("file"), str):
            fits = {"file": str, "matches": str, "priority": int}
            plain = {key: marker[key] for key, kind in fits.items() if isinstance(marker.get(key), kind)}
            yield plain if _is_pattern(plain.get("matches", "")) else {"file": marker["file"]}


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
