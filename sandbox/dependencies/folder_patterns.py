"""Folders of a workspace that a manifest names by a pattern, such as `crates/*`."""

from __future__ import annotations

import fnmatch
import posixpath

from sandbox.dependencies.collection import Collection

MAX_FOLDERS = 60  # of one pattern; each has a manifest, and a collection reads 64 files
MAX_PATTERNS = 100  # of one tree
_MAX_CHARS = 100
_MAX_MARKS = 4
_MARKS = "*?["


def is_pattern(text: str) -> bool:
    """Whether it is no plain path."""
    return any(mark in text for mark in _MARKS)


def find_folders(collection: Collection, pattern: str) -> list[str] | None:
    """The folders that fit, by name; None for a pattern that is not understood: `**`, unprintable text, one that leaves
    the tree, or one that fits too many; and past `MAX_PATTERNS`. Names that begin with a dot, and `node_modules`, fit
    no pattern.
    """
    parts = posixpath.normpath(pattern).split("/")
    marks = sum(pattern.count(mark) for mark in _MARKS)
    collection.patterns += 1
    if (
        collection.patterns > MAX_PATTERNS
        or len(pattern) > _MAX_CHARS
        or not pattern.isprintable()  # no path of git, or no text: lone surrogates, NUL
        or marks > _MAX_MARKS
        or "**" in pattern
        or parts[0] in {"..", ""}
    ):
        return None
    found = [""]
    for part in parts:
        found = [posixpath.join(folder, name) for folder in found for name in _fit(collection, folder, part)]
        if len(found) > MAX_FOLDERS:
            return None
    return found


def _fit(collection: Collection, folder: str, part: str) -> list[str]:
    if not is_pattern(part):
        return [part]
    names = (name for name in collection.list_folders(folder) if not name.startswith(".") and name != "node_modules")
    return sorted(fnmatch.filter(names, part))
