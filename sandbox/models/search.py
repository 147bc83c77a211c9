"""Searches in the files of a task."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class SearchQuery(Model):
    """What to find in a task's files. `glob` without `pattern` lists paths; see docs/search.md."""

    pattern: str | None = None
    glob: str | None = None
    regex: bool = False
    ignore_case: bool = False
    include_ignored: bool = False
    max_results: int = 200
    timeout_s: float = 10.0


class SearchHit(Model):
    """One line with a match; lines count from 1. `cut`: the line is longer and `text` is the part around the match."""

    path: str
    line: int
    text: str
    cut: bool = False


class SearchSkipped(Model):
    """Files without hits. `binary`: they match but have no lines. `ignored`: None if they were not counted."""

    binary: int
    too_large: int
    ignored: int | None


class SearchResult(Model):
    """Hits in the order of paths and lines. `files`: all paths with a match, including binary files, or all that match
    a glob without a pattern. `truncated`: there may be more, because of `stopped_by`. `note`: why there are no hits, or
    no more.
    """

    hits: tuple[SearchHit, ...]
    files: tuple[str, ...]
    truncated: bool
    stopped_by: Literal["max_results", "time", "pattern"] | None
    skipped: SearchSkipped
    note: str = ""
