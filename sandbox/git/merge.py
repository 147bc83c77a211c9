"""Three-way merge of trees: objects in, objects out. No worktree, no index on disk, no ref.

Theory. `git merge-tree --write-tree` (git 2.38) merges two commits with the strategy `ort`. It takes the merge base
from their history, so the three trees are first wrapped in commits of ours: one for the base, two on top of it. What
could make it obey the repository is absent: a bare clone has no attributes (no merge driver, no filter, no `union`),
and its configuration is ours. For a submodule that differs on all three sides it would look for a repository of that
path, so such a merge is refused before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.diff import blob_sizes, diff_trees
from sandbox.git.entries import GITLINK, REGULAR, Content, TreeChange
from sandbox.git.failures import classify
from sandbox.git.memory_limits import LARGE
from sandbox.git.new_commits import as_environment, build_tree, commit_tree
from sandbox.git.objects import EMPTY_TREES, is_object_id
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox.git import shallow
else:  # loaded at first use (docs/adr/0080)
    shallow = LazyModule("sandbox.git.shallow")

_WHO = {f"GIT_{who}_{field}": value for who in ("AUTHOR", "COMMITTER") for field, value in (
    ("NAME", "sandbox"), ("EMAIL", "sandbox@localhost"), ("DATE", "@0 +0000"))}  # fmt: skip
_CONFIG = {
    "merge.directoryRenames": "false",  # no file of one side moves because the other moved its neighbours
    "merge.renameLimit": "400",  # pairs of files are compared line by line; the trees may be hostile
    "merge.conflictStyle": "merge",
    "merge.renormalize": "false",
}
_ENTRY = re.compile(rb"^([0-7]{6}) ([0-9a-f]{40,64}) ([123])\t(.+)$", re.DOTALL)
_PARTS = {b"1": "base", b"2": "ours", b"3": "theirs"}


@dataclass(frozen=True)
class Side:
    """What one side has at a path."""

    mode: str
    oid: str


@dataclass(frozen=True)
class TreeConflict:
    """A path that the merge could not decide. None for a side without this path.

    `is_structural`: one side has a file where the other has a directory, so no side of this path alone can be taken.
    """

    path: bytes
    base: Side | None
    ours: Side | None
    theirs: Side | None
    is_structural: bool = False


@dataclass(frozen=True)
class TreeMerge:
    """The merged tree and what it could not decide. There the tree has the text with conflict markers, or one side.

    `labels`: what the markers call our side and their side.
    """

    tree: str
    conflicts: tuple[TreeConflict, ...]
    labels: tuple[str, str]


def merge_trees(git: Git, base: str, ours: str, theirs: str) -> TreeMerge:
    """Merge what changed from `base` to `ours` with what changed from `base` to `theirs`; trees or commits.

    Objects are stored where `git` stores them. Raises: `conflict` for a submodule that both sides changed;
    `quota_exceeded`, `timeout`.
    """
    _require_unchanged_submodules(git, base, ours, theirs)
    root = commit_tree(git, _tree_name(base), (), "base\n", _WHO)
    left, right = (commit_tree(git, _tree_name(tree), root, f"{word}\n", _WHO)
                   for tree, word in ((ours, "ours"), (theirs, "theirs")))  # fmt: skip
    words = ("merge-tree", "--write-tree", "-z", "--no-messages", left, right)
    no_attributes = {"GIT_ATTR_SOURCE": EMPTY_TREES[len(left)]}  # git 2.41; older ones read none in a bare repository
    result = git.with_memory(LARGE).attempt(*words, env=as_environment(_CONFIG) | no_attributes)
    if result.code not in {0, 1}:
        raise classify("merge-tree", result.code, result.stderr)
    tree, *entries = result.stdout.rstrip(b"\0").split(b"\0")
    if not is_object_id(tree.decode("ascii", errors="replace")):
        raise SandboxError(ErrorCode.INTERNAL, "git printed no tree for a merge", details=ascii(tree[:200]))
    conflicts = _parse_conflicts(entries, (left, right))
    if result.code == 1 and not conflicts:
        raise SandboxError(ErrorCode.INTERNAL, "git reported a conflict without a path")
    return TreeMerge(tree.decode(), conflicts, (left, right))


def find_merge_base(git: Git, ours: str, theirs: str) -> str:
    """The best common commit of two commits. Raises: `conflict` without one, or where a shallow history may hide it.

    A commit that the other one has in its history is the best in any history; another one only if all paths to it are
    known.
    """
    found = git.attempt("merge-base", ours, theirs)
    commit = found.stdout.decode().strip()
    if found.code != 0 or not is_object_id(commit):
        if shallow.is_shallow(git.git_dir):
            brief = (
                f"The checkout is shallow: it does not show what commits {ours[:12]} and {theirs[:12]} have in common"
            )
            raise shallow.shallow_error(brief)
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"Commits {ours[:12]} and {theirs[:12]} have no common history",
            hint="`sandbox task checkout` moves a task without commits of its own there.",
        )
    if commit not in {ours, theirs}:
        shallow.require_whole_history(git, ours, theirs, f"^{commit}")
    return commit


def _tree_name(oid: str) -> str:
    return f"{oid}^{{tree}}"


def _require_unchanged_submodules(git: Git, base: str, ours: str, theirs: str) -> None:
    sides = [
        {c.path for c in diff_trees(git, base, side) if GITLINK in {c.old_mode, c.new_mode}} for side in (ours, theirs)
    ]
    if both := sorted(sides[0] & sides[1]):
        raise SandboxError(
            ErrorCode.CONFLICT,
            "Both sides changed a submodule, which is not merged",
            details=", ".join(ascii(path) for path in both[:10]),
            hint="Undo the task's change of it, and repeat.",
        )


def _parse_conflicts(entries: Iterable[bytes], labels: tuple[str, str]) -> tuple[TreeConflict, ...]:
    found: dict[bytes, dict[str, Side]] = {}
    for entry in entries:
        if match := _ENTRY.match(entry):
            found.setdefault(match[4], {})[_PARTS[match[3]]] = Side(match[1].decode(), match[2].decode())
    return tuple(_as_conflict(path, sides, labels) for path, sides in sorted(found.items()))


def _as_conflict(path: bytes, sides: dict[str, Side], labels: tuple[str, str]) -> TreeConflict:
    """git moves a file away from a directory of the same name: to the path, `~` and the name of its side."""
    original, tilde, label = path.rpartition(b"~")
    moved = bool(tilde) and label.split(b"_")[0].decode(errors="replace") in labels
    return TreeConflict(
        original if moved else path, sides.get("base"), sides.get("ours"), sides.get("theirs"), is_structural=moved
    )


def resolve_conflicts(git: Git, merge: TreeMerge, chosen: Sequence[tuple[bytes, Side | Content | None]]) -> str:
    """The merged tree with a choice for each of its conflicts: a side, new content, or None to delete the path.

    New content of a path that is a regular file on one side keeps that side's mode. Raises: `internal`.
    """
    base = commit_tree(git, merge.tree, (), "merged\n", _WHO)
    conflicts = {conflict.path: conflict for conflict in merge.conflicts}
    sizes = blob_sizes(git, {choice.oid for _, choice in chosen if isinstance(choice, Side)})
    return build_tree(git, base, [_as_change(conflicts[path], choice, sizes) for path, choice in chosen])


def _as_change(conflict: TreeConflict, choice: Side | Content | None, sizes: Mapping[str, int]) -> TreeChange:
    if choice is None:
        return TreeChange(conflict.path, "000000", None)
    if isinstance(choice, Side):
        stored = Content(choice.oid, sizes[choice.oid], lambda: iter(()), is_stored=True)
        return TreeChange(conflict.path, choice.mode, stored)
    modes = [side.mode for side in (conflict.ours, conflict.theirs) if side and side.mode.startswith("100")]
    return TreeChange(conflict.path, modes[0] if modes else REGULAR, choice)
