"""Which projects of a repository changed since a commit, for CI jobs of a repository with several."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.diff import diff_trees
from sandbox.git.merge import find_merge_base
from sandbox.git.process import Git
from sandbox.profiles import Profile


def list_changed_paths(git: Git, commits: tuple[str, str], tree: str) -> tuple[str, ...]:
    """Paths in which a tree differs from what the two commits have in common: the base of a pull request, and its
    head. Raises: `conflict` without a common history.
    """
    before = find_merge_base(git, *commits)
    return tuple(change.path.decode("utf-8", errors="replace") for change in diff_trees(git, before, tree))


def find_changed_checks(profile: Profile, changed: Sequence[str]) -> tuple[str, ...]:
    """Checks of the parts with a changed file in their folder, in the order of the profile. A part at the top has all
    files. Pure.
    """
    ids = {check.id for part in profile.parts if _has_change(part.folder, changed) for check in part.checks}
    return tuple(check.id for check in profile.checks if check.id in ids)


def _has_change(folder: str, changed: Sequence[str]) -> bool:
    return any(path.startswith(f"{folder}/") for path in changed) if folder else bool(changed)
