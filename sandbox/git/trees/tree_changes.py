"""The difference of two nodes: changed leaves, found by descending only where ids differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import RawChange
from sandbox.git.trees.nodes import (
    MAX_DEPTH,
    DirectorySource,
    FoundEntry,
    Node,
    is_folder,
    list_level,
    oid_of,
    walk_below,
)
from sandbox.git.trees.tree_format import EntryBudget, normalize_mode

MAX_CHANGES = 300_000
"""Files that differ, and directories that only one side has. Reached: `quota_exceeded`."""
MAX_COMPARED = 900_000
"""Names in directories that both sides have and that differ: of two trees of `MAX_CHANGES` files, and half as many
directories. A name takes about 350 bytes and a few microseconds. Reached: `quota_exceeded`."""
_KIND = 0o170000


def compare_nodes(store: DirectorySource, before: Node, after: Node) -> list[RawChange]:
    """Changed leaves between two directories, sorted by path, without renames.

    One directory may be at many places of a tree, and counts at each of them: what is counted is the whole comparison.
    Raises: `quota_exceeded` past `MAX_CHANGES`, `MAX_COMPARED`, `PATHS_BYTES` or `MAX_DEPTH` levels.
    """
    changed = EntryBudget(MAX_CHANGES, "this difference")
    compared = EntryBudget(MAX_COMPARED, "the directories that differ")
    found: list[RawChange] = []
    todo: list[tuple[bytes, Node, Node, int]] = [(b"", before, after, 0)]
    while todo:
        path, old, new, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"This tree has more than {MAX_DEPTH} levels of directories")
        (_, left), (_, right) = list_level(store, [FoundEntry(path, old), FoundEntry(path, new)], compared)
        for name, one, other in _list_differing(left, right):
            place = path + b"/" + name if path else name
            changed.spend_paths(len(place))
            if one is not None and other is not None and is_folder(one) and is_folder(other):
                todo.append((place, one, other, depth + 1))
            else:
                found += _compare_leaves(store, changed, place, one, other)
    return sorted(found, key=lambda change: change.path)


def _list_differing(
    left: Mapping[bytes, Node], right: Mapping[bytes, Node]
) -> Iterator[tuple[bytes, Node | None, Node | None]]:
    """The names that are not the same on both sides, with both nodes; one that was written since may be equal."""
    for name, one in left.items():
        other = right.get(name)
        if one is not other and one != other:
            yield name, one, other
    for name, other in right.items():
        if name not in left:
            yield name, None, other


def _compare_leaves(
    store: DirectorySource, budget: EntryBudget, path: bytes, old: Node | None, new: Node | None
) -> Iterator[RawChange]:
    if old is not None and is_folder(old):
        for gone in walk_below(store, old, path, budget):
            yield from _one_sided(store, gone.path, gone.node, "D")
        old = None
    if new is not None and is_folder(new):
        for added in walk_below(store, new, path, budget):
            yield from _one_sided(store, added.path, added.node, "A")
        new = None
    if old is None and new is None:
        return
    budget.spend(1)
    if old is None or new is None:
        for node, status in ((old, "D"), (new, "A")):
            if node is not None:
                yield from _one_sided(store, path, node, status)
        return
    sides = [(_mode(node), _digits(store, node)) for node in (old, new)]
    if sides[0] != sides[1]:
        status = "T" if (old.mode & _KIND) != (new.mode & _KIND) else "M"
        yield RawChange(path, sides[0][0], sides[1][0], sides[0][1], sides[1][1], status)


def _one_sided(store: DirectorySource, path: bytes, node: Node, status: str) -> Iterator[RawChange]:
    if is_folder(node):
        return
    mode, oid = _mode(node), _digits(store, node)
    if status == "A":
        yield RawChange(path, "000000", mode, None, oid, status)
    else:
        yield RawChange(path, mode, "000000", oid, None, status)


def _mode(node: Node) -> str:
    return f"{normalize_mode(node.mode):06o}"


def _digits(store: DirectorySource, node: Node) -> str:
    return oid_of(node, store.oid_bytes).hex()


def join_exact_renames(changes: Iterable[RawChange]) -> list[RawChange]:
    """The same changes; a file that was deleted at one path and added, unchanged, at another is renamed. Pure."""
    listed = list(changes)
    gone: dict[tuple[str | None, str], list[RawChange]] = {}
    for change in listed:
        if change.status == "D":
            gone.setdefault((change.old_oid, change.old_mode), []).append(change)
    renamed: list[RawChange] = []
    used: set[bytes] = set()
    for change in listed:
        sources = gone.get((change.new_oid, change.new_mode)) if change.status == "A" else None
        if sources:
            source = sources.pop(0)
            used.add(source.path)
            change = replace(change, status="R", old_path=source.path, old_mode=source.old_mode, old_oid=source.old_oid)
        renamed.append(change)
    return [change for change in renamed if not (change.status == "D" and change.path in used)]
