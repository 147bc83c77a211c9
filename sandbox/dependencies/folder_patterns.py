"""Folders of a workspace that a manifest names by a pattern, such as `crates/*` or `packages/**`."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable
from itertools import pairwise, takewhile

from sandbox.dependencies.collection import Collection

MAX_FOLDERS = 60  # of one pattern; each has a manifest
MAX_PATTERNS = 100  # of one tree
MAX_COMPARED = 1_000_000  # names of folders with patterns, of one tree: 5,000 folders of four names with 50 patterns
_MAX_CHARS = 100
_MAX_MARKS = 4
_MAX_DEPTH = 20  # of folders that are looked at
_PATH_CHARS = 300
_MARKS = frozenset("*?[")
_ANY_DEPTH = "**"  # a part of a pattern: the folder itself, and all below it


def is_pattern(text: str) -> bool:
    """Whether it is no plain path."""
    return not _MARKS.isdisjoint(text)


def resolve_folder(folder: str, path: object) -> str | None:
    """A folder of the tree, by its path from another one, '' for the top; None for one that is elsewhere, and for
    a path that is too long for an argument of git.
    """
    if not isinstance(path, str) or path.startswith(("/", "~")) or "\\" in path or "\0" in path:
        return None
    found = posixpath.normpath(posixpath.join(folder, path))
    if found.split("/")[0] == ".." or len(found) > _PATH_CHARS:
        return None
    return "" if found == "." else found


def find_folders(collection: Collection, pattern: str, manifest: str) -> list[str] | None:
    """The folders that fit and have a file `manifest`, by name, without the top; None for a pattern that is not
    understood: unprintable text, one that leaves the tree, has many marks, or fits too many folders; and past
    `MAX_PATTERNS` and `MAX_COMPARED`. Names that begin with a dot, and `node_modules`, fit no mark.
    """
    parts = _split(pattern)
    marks = sum(pattern.count(mark) for mark in _MARKS)
    collection.patterns += 1
    if (
        collection.patterns > MAX_PATTERNS
        or len(pattern) > _MAX_CHARS
        or not pattern.isprintable()  # no path of git, or no text: lone surrogates, NUL
        or marks > _MAX_MARKS
        or parts[0] in {"..", ""}
    ):
        return None
    plain = "".join(f"{part}/" for part in takewhile(lambda part: not is_pattern(part), parts))
    below = [folder for folder in collection.list_folders(manifest) if f"{folder}/".startswith(plain)]
    collection.compared += sum(folder.count("/") + 1 for folder in below)
    if collection.compared > MAX_COMPARED:
        return None
    found = [folder for folder in below if _fits(folder.split("/"), parts)]
    return None if len(found) > MAX_FOLDERS else found


def fits_pattern(folder: str, pattern: str) -> bool:
    """Whether a folder of the tree fits a pattern, or is the plain path that it is. False for one that is not
    understood.
    """
    marks = sum(pattern.count(mark) for mark in _MARKS)
    is_understood = pattern.isprintable() and len(pattern) <= _MAX_CHARS and marks <= _MAX_MARKS
    return is_understood and _fits(folder.split("/"), _split(pattern))


def find_members(collection: Collection, patterns: Iterable[str], manifest: str) -> tuple[list[str], list[str]]:
    """The folders that fit one of the patterns and none of those that begin with `!`; and the patterns that are not
    understood.
    """
    found: dict[bool, list[str]] = {True: [], False: []}
    refused = []
    for pattern in patterns:
        folders = find_folders(collection, pattern.removeprefix("!"), manifest)
        if folders is None:
            refused.append(pattern)
        found[not pattern.startswith("!")] += folders or []
    left_out = set(found[False])
    return [folder for folder in dict.fromkeys(found[True]) if folder not in left_out], refused


def _split(pattern: str) -> list[str]:
    """Its parts; `**/**` is `**`."""
    parts = posixpath.normpath(pattern).split("/")
    return [part for before, part in pairwise(["", *parts]) if (before, part) != (_ANY_DEPTH, _ANY_DEPTH)]


def _fits(names: list[str], parts: list[str]) -> bool:
    """In a time that grows with the names times the parts. `counts`: how many of the parts can stand for the names so
    far.
    """
    if len(names) > _MAX_DEPTH:
        return False
    counts = _add_empty({0}, parts)
    for name in names:
        fitting = (count for count in counts if count < len(parts) and _fits_one(name, parts[count]))
        counts = _add_empty({count if parts[count] == _ANY_DEPTH else count + 1 for count in fitting}, parts)
        if not counts:
            return False
    return len(parts) in counts


def _add_empty(counts: set[int], parts: list[str]) -> set[int]:
    """With a next part that stands for no name."""
    return counts | {count + 1 for count in counts if parts[count : count + 1] == [_ANY_DEPTH]}


def _fits_one(name: str, part: str) -> bool:
    if part != _ANY_DEPTH and not is_pattern(part):
        return name == part
    is_plain = not name.startswith(".") and name != "node_modules"
    return is_plain and (part == _ANY_DEPTH or fnmatch.fnmatchcase(name, part))
