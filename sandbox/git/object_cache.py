"""A cache of git's answers about immutable objects of one repository. It lives as long as the controller.

An object id always names the same content, so an answer about a tree or commit stays valid. Only git's answers are
cached, never anything that a guest wrote. Each cache is bounded: when it is full, it is emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Generic, TypeVar

from sandbox.git.entries import Item, RawChange, TreeEntry
from sandbox.lazy_dataclass import dataclass

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")

MAX_DIFFERENCES = 64
MAX_CHANGES = 1024
"""How many differences are cached, and how many leaves one may have."""

MAX_LISTED = 256
"""How many leaves a tree may have for its whole listing to be cached."""


class BoundedCache(Generic[_KeyT, _ValueT]):
    """At most `limit` entries. Thread-safe: two threads that store the same key store equal values."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[_KeyT, _ValueT] = {}

    def get(self, key: _KeyT) -> _ValueT | None:
        """The cached value, or None."""
        return self._entries.get(key)

    def store(self, new: Mapping[_KeyT, _ValueT]) -> None:
        """Store these entries. Ignored if they alone exceed the limit."""
        if len(new) > self._limit:
            return
        if len(self._entries) + len(new) > self._limit:
            self._entries = {}
        self._entries.update(new)

    def copy_entries(self) -> dict[_KeyT, _ValueT]:
        """A copy of all current entries."""
        return self._entries.copy()


@dataclass(frozen=True)
class ObjectCache:
    """`trees`: the tree of a commit. `leaves`: leaves of a tree, at and below a path. `sizes`: of blobs.
    `differences`: leaves in which two trees differ. `commit_counts`: number of commits on the second commit that the
    first does not have. `listings`: all leaves of small trees, with sizes. `directories`: entries of small directories,
    by the bytes of their id.
    """

    trees: BoundedCache[str, str] = field(default_factory=lambda: BoundedCache(4096))
    leaves: BoundedCache[tuple[str, bytes], tuple[TreeEntry, ...]] = field(default_factory=lambda: BoundedCache(4096))
    sizes: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(16_384))
    differences: BoundedCache[tuple[str, str], tuple[RawChange, ...]] = field(
        default_factory=lambda: BoundedCache(MAX_DIFFERENCES)
    )
    commit_counts: BoundedCache[tuple[str, str], int] = field(default_factory=lambda: BoundedCache(1024))
    listings: BoundedCache[str, tuple[TreeEntry, ...]] = field(default_factory=lambda: BoundedCache(64))
    directories: BoundedCache[bytes, Mapping[bytes, Item]] = field(default_factory=lambda: BoundedCache(128))

    def store_difference(self, before: str, after: str, changes: Iterable[RawChange]) -> None:
        """Store the difference of two trees. Also extend the cached differences that end at `before` to `after`."""
        step = tuple(changes)
        longer = {
            (first, after): combine_differences(m, step)
            for (first, last), m in self.differences.copy_entries().items()
            if last == before
        }
        every = {(before, after): step} | {ends: m for ends, m in longer.items() if ends[0] != after}
        self.differences.store({ends: m for ends, m in every.items() if len(m) <= MAX_CHANGES})


def combine_differences(first: Iterable[RawChange], second: Iterable[RawChange]) -> tuple[RawChange, ...]:
    """Combine the differences A to B and B to C into the difference A to C. None has renames. Pure."""
    found = {change.path: change for change in first}
    for change in second:
        earlier = found.pop(change.path, None)
        joined = change if earlier is None else _join_changes(earlier, change)
        if (joined.old_mode, joined.old_oid) != (joined.new_mode, joined.new_oid):
            found[change.path] = joined
    return tuple(found[path] for path in sorted(found))


def _join_changes(first: RawChange, second: RawChange) -> RawChange:
    kind = "A" if first.old_oid is None else "D" if second.new_oid is None else "M"
    if kind == "M" and first.old_mode[:2] != second.new_mode[:2]:  # file, link or submodule
        kind = "T"
    return replace(second, old_mode=first.old_mode, old_oid=first.old_oid, status=kind)
