"""Detect exact renames in a worktree: an added file with the same content as a deleted one.

Only object ids are compared, so it costs one git process, and none unless files were both added and deleted. Renames
with edits are detected by the diff, because they need the contents of both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.entries import SYMLINK, TreeChange
from sandbox.git.process import Git
from sandbox.git.tree_lookup import ARGUMENT_BYTES, find_files
from sandbox.models import Change, ChangeKind
from sandbox.policy.paths import show_path
from sandbox.workspaces.changes import Changes

_Content = tuple[bool, str]
"""Whether it is a symlink, and the object id."""


def merge_exact_renames(git: Git, head: str, changes: Changes) -> tuple[Change, ...]:
    """The shown changes, with pairs of a deleted and an added file of equal content merged into renames."""
    gone = [c.path for c in changes.tree if c.content is None]
    new = [c for c in changes.tree if c.content and c.content.size]  # an empty file has no origin
    if not gone or not new or sum(len(path) + 1 for path in gone) > ARGUMENT_BYTES:  # mass deletions: not paired
        return changes.shown
    origins = {path: (e.mode == SYMLINK, e.oid) for path, e in find_files(git, head, gone).items()}
    return pair_up(changes.shown, new, origins)


def pair_up(shown: Sequence[Change], new: Sequence[TreeChange], gone: dict[bytes, _Content]) -> tuple[Change, ...]:
    """Merge renames. Each deleted path is the origin of at most one added path, the first in order. Pure."""
    origins: dict[_Content, list[str]] = {}
    for raw in sorted(gone, reverse=True):
        origins.setdefault(gone[raw], []).append(show_path(raw))
    added = {c.path for c in shown if c.kind is ChangeKind.ADDED}
    renamed: dict[str, str] = {}
    for change in new:
        if (path := show_path(change.path)) in added and change.content is not None:
            paths = origins.get((change.mode == SYMLINK, change.content.oid))
            if paths:
                renamed[path] = paths.pop()
    moved = set(renamed.values())
    return tuple(_as_rename(c, renamed) for c in shown if c.path not in moved)


def _as_rename(change: Change, renamed: dict[str, str]) -> Change:
    if change.path not in renamed:
        return change
    return change.model_copy(update={"kind": ChangeKind.RENAMED, "old_path": renamed[change.path]})
