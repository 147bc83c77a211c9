"""Search in the files of a task."""

from __future__ import annotations

from typing import Literal

from sandbox.models.model import Model


class SearchQuery(Model):
    """What to look for in a task's files. `glob` alone lists paths; see docs/search.md."""

    pattern: str | None = None
    glob: str | None = None
    regex: bool = False
    ignore_case: bool = False
    include_ignored: bool = False
    max_results: int = 200
    timeout_s: float = 10.0


class SearchHit(Model):
    """One line with a match, from 1. `cut`: the line is longer, `text` is the part around the match."""

    path: str
    line: int
    text: str
    cut: bool = False


class SearchSkipped(Model):
    """Files left out. `binary`: they match, but have no lines; `ignored`: None where nobody counted them."""

    binary: int
    too_large: int
    ignored: int | None


class SearchResult(Model):
    """Hits in the order of paths and lines. `files`: all paths with a match, binary ones too, or all that a glob alone
    means. `truncated`: there may be more, because of `stopped_by`.
    """

    hits: tuple[SearchHit, ...]
    files: tuple[str, ...]
    truncated: bool
    stopped_by: Literal["max_results", "time", "pattern"] | None
    skipped: SearchSkipped
