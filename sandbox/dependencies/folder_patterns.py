"""Folders of a workspace that a manifest names by a pattern, such as `crates/*` or `packages/**`."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable

from sandbox.dependencies.collection import Collection

MAX_FOLDERS = 60  # of one pattern; each has a manifest, and a collection reads 64 files
MAX_PATTERNS = 100  # of one tree
_MAX_CHARS = 100
_MAX_MARKS = 4
_MAX_DEPTH = 20  # of folders that are looked at
_MARKS = "*?["
_ANY_DEPTH = "**"  # a part of a pattern: the folder itself, and all below it


def is_pattern(text: str) -> bool:
    """Whether it is no plain path."""
    return any(mark in text for mark in _MARKS)


def resolve_folder(folder: str, path: object) -> str | None:
    """A folder of the tree, by its path from another one, '' for the top; None for one that is elsewhere."""
    if not isinstance(path, str) or path.startswith(("/", "~")) or "\\" in path or "\0" in path:
        return None
    found = posixpath.normpath(posixpath.join(folder, path))
    return None if found.split("/")[0] == ".." else "" if found == "." else found


def find_folders(collection: Collection, pattern: str, manifest: str) -> list[str] | None:
    """The folders that fit and have a file `manifest`, by name, without the top; None for a pattern that is not
    understood: unprintable text, one that leaves the tree, has many marks, or fits too many folders; and past
    `MAX_PATTERNS`. Names that begin with a dot, and `node_modules`, fit no mark.
    """
    parts = posixpath.normpath(pattern).split("/")
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
    found = [folder for folder in collection.list_folders(manifest) if _fits(folder.split("/"), parts)]
    return None if len(found) > MAX_FOLDERS else found


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


def _fits(names: list[str], parts: list[str]) -> bool:
    if len(names) > _MAX_DEPTH:
        return False
    if not parts:
        return not names
    if parts[0] == _ANY_DEPTH and _fits(names, parts[1:]):
        return True
    if not names or not _fits_one(names[0], parts[0]):
        return False
    return _fits(names[1:], parts if parts[0] == _ANY_DEPTH else parts[1:])


def _fits_one(name: str, part: str) -> bool:
    if not is_pattern(part):
        return name == part
    return not name.startswith(".") and name != "node_modules" and fnmatch.fnmatchcase(name, part)
