"""Find matches in a task's working state, in path order; each file is read from its cheapest source.

Unchanged files are read in the pristine checkout below the worktree, if there is one: it is immutable, and holds the
same bytes as the blobs, which are slow to unpack (docs/adr/0018). All other files are searched as git objects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.grep import BinaryMatch, LineMatch, Query, grep, grep_checkout
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass

MAX_PATHS = 100
"""Maximum paths on a git command line; if more paths differ, the whole tree is searched as objects."""
_MIN_DEADLINE_S = 0.01

Match = LineMatch | BinaryMatch


@dataclass(frozen=True)
class PristineSearch:
    """A checkout of a tree that is similar to the searched one.

    `differing`: paths at which the searched tree has another entry, or none. `changed_files`: those of them that are
    files in the searched tree, sorted.
    """

    checkout: Path
    differing: tuple[bytes, ...] = ()
    changed_files: tuple[bytes, ...] = ()


def plan_pristine_search(git: Git, tree: str, checkout: Path | None) -> PristineSearch | None:
    """How to use a checkout, named by its tree's id, in a search of `tree`; None when too many paths differ."""
    if checkout is None or checkout.name == tree:
        return None if checkout is None else PristineSearch(checkout)
    changes = diff_trees(git, checkout.name, tree)
    if len(changes) > MAX_PATHS:
        return None
    files = sorted(c.path for c in changes if c.new_mode in {REGULAR, EXECUTABLE})
    return PristineSearch(checkout, tuple(c.path for c in changes), tuple(files))


def find_matches(
    git: Git,
    tree: str,
    pristine: PristineSearch | None,
    query: Query,
    patterns_by_path: Iterable[str],
    deadline_s: float,
) -> Generator[Match]:
    """The matches of `grep` in `tree`, in the order of `grep`. Raises: as `grep` and `grep_checkout`."""
    patterns = tuple(patterns_by_path)
    if pristine is None:
        yield from grep(git, tree, query, patterns, deadline_s)
        return
    ends = time.monotonic() + deadline_s

    def in_objects() -> Generator[Match]:
        if pristine.changed_files:
            paths = [f":(literal){os.fsdecode(path)}" for path in pristine.changed_files]
            yield from grep(git, tree, query, paths, max(ends - time.monotonic(), _MIN_DEADLINE_S))

    unchanged = grep_checkout(git, pristine.checkout, query, patterns, pristine.differing, deadline_s)
    with closing(unchanged), closing(in_objects()) as changed:
        yield from _merge_by_path(unchanged, _LateMatches(changed, pristine.changed_files))


def _merge_by_path(unchanged: Iterable[Match], changed: _LateMatches) -> Iterator[Match]:
    for match in unchanged:
        yield from changed.take_before(match.path)
        yield match
    yield from changed.take_before(None)


class _LateMatches:
    """Matches in the changed files, searched as late as path order allows, because it may take all remaining time."""

    def __init__(self, found: Iterator[Match], files: tuple[bytes, ...]) -> None:
        self._found = found
        self._next: Match | None = None
        self._from = files[0] if files else None  # lower bound of the next match's path; None when no match is left

    def take_before(self, path: bytes | None) -> Iterator[Match]:
        """Matches in files before `path`; all remaining ones for None."""
        while self._from is not None and (path is None or self._from < path):
            if self._next is not None:
                yield self._next
            self._next = next(self._found, None)
            self._from = None if self._next is None else self._next.path
