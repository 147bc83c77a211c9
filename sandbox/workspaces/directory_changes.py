"""What a person changed in a directory of their own and did not commit, with contents.

The directory may be hostile, so git never reads it: files are opened as in a worktree (files/tree.py). What cannot be
in a tree is left out and named. Files count as they are on disk: no filter (line endings) is applied; only a file of
Git LFS counts as its pointer. New files are ignored by the directory's own `.gitignore` files, `.git/info/exclude` and
the build output of the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sandbox.files.names import WorktreeTooLarge
from sandbox.files.tree import WorktreeFiles
from sandbox.git.contents import ContentSpool
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, TreeEntry
from sandbox.git.process import Git
from sandbox.policy.paths import parent_folders, show_path
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.changes import Changes, Comparison, find_pointers
from sandbox.workspaces.comparison_limits import ComparisonLimits
from sandbox.workspaces.working_directory import (
    GitIndex,
    add_rules_of_folder,
    counts_modes,
    is_git_of_tracked,
    load_directory_rules,
)

_TOO_LARGE_HINT = (
    "Remove build output and large files, or name them in .gitignore. Without --include-changes the last commit is "
    "verified."
)


def read_directory_changes(
    git: Git,
    root: Path,
    commit: tuple[Sequence[TreeEntry], BaseFacts],
    artifacts: Iterable[str],
    spool: ContentSpool,
    limits: ComparisonLimits,
) -> Changes:
    """The difference from a commit to the directory. `commit`: its leaves and facts. `artifacts`: ignore rules.

    Files that a sparse checkout leaves out are not deleted. Raises: `quota_exceeded`, `not_found`.
    """
    leaves, facts = commit
    gitlinks = facts.gitlink_paths()
    head = {leaf.path: leaf for leaf in leaves}
    tracked = parent_folders(head)
    with _advise_for_directory(), WorktreeFiles(root.resolve()) as files:
        rules = load_directory_rules(files, facts.ignore, artifacts)

        def skip(folder: bytes) -> bool:
            ignored = folder not in tracked and rules.is_ignored(show_path(folder), directory=True)
            if folder in gitlinks or ignored:
                return True
            add_rules_of_folder(files, rules, folder)
            return False

        seen = GitIndex.of(files, len(facts.tree))
        walked = files.walk(skip, limits.names)
        entries = [entry for entry in walked if not is_git_of_tracked(entry.path, tracked)]
        comparison = Comparison(files, head, facts, spool, limits, find_pointers(git, facts, head, entries))
        present = comparison.compare_entries(entries, rules)
        with_modes = counts_modes(files)
    missing = (path for path, leaf in head.items() if path not in present and leaf.mode != GITLINK)
    comparison.add_deletions(path for path in missing if not seen.is_skipped(path))
    changes = comparison.result()
    return changes if with_modes else _without_modes(changes)


@contextmanager
def _advise_for_directory() -> Iterator[None]:
    """Replace the hint of `WorktreeTooLarge`, which is for a task."""
    try:
        yield
    except WorktreeTooLarge as error:
        raise error.with_hint(_TOO_LARGE_HINT) from error


def _without_modes(changes: Changes) -> Changes:
    """The changes where the file system has no modes: each file keeps the one that it has in the commit."""
    kept = []
    for change, shown in zip(changes.tree, changes.shown, strict=True):
        before = changes.before.get(change.path)
        if before and {before.mode, change.mode} == {REGULAR, EXECUTABLE}:
            if change.content is not None and change.content.oid == before.oid:
                continue
            change = replace(change, mode=before.mode)
        kept.append((change, shown))
    return replace(changes, tree=tuple(tree for tree, _ in kept), shown=tuple(shown for _, shown in kept))
