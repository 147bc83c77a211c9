"""Keep what a worktree without a task holds, as a commit under a ref of its own, before the worktree goes."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay import read_upper
from sandbox.git import objects
from sandbox.git.cache_clones import open_cache
from sandbox.git.process import Git
from sandbox.policy.writes import RESERVED_PREFIX
from sandbox.workbench.controller.commit_identity import NEUTRAL
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.commit_facts import base_of
from sandbox.workbench.tasks.worktrees import site_of
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.layout import Site
from sandbox.workspaces.layout_choice import layout_of

_OURS = RESERVED_PREFIX.decode()


@dataclass(frozen=True)
class Saved:
    """Where the changes of a worktree are now. `is_new`: they were nowhere before."""

    ref: str = ""
    is_new: bool = False

    NOTHING: ClassVar[Saved]

    @property
    def note(self) -> str:
        return f"its changes are in {self.ref}" if self.ref else ""


Saved.NOTHING = Saved()


def rescue(parts: Parts, repo_id: str, task_id: str) -> Saved:
    """Commit the changes on the head of the task's branch, under `refs/sandbox/TASK/rescued-<tree>`.

    The caller holds the lock of the task. Raises: `dirty_workspace` and what git does, when it cannot be done
    or not in full: a name that no commit can hold. The worktree has to stay then.
    """
    git = open_cache(parts.home.clone(repo_id), parts.settings.git.executable)
    found = _found(parts, repo_id, task_id, git)
    return _kept(parts, git, (task_id, found[0]), found[1]) if found and found[1].tree else Saved.NOTHING


def would_rescue(parts: Parts, repo_id: str, task_id: str) -> tuple[str, ...]:
    """Names of the changed files that `rescue` would keep. Raises: as that does."""
    git = open_cache(parts.home.clone(repo_id), parts.settings.git.executable)
    found = _found(parts, repo_id, task_id, git)
    return tuple(change.path for change in found[1].shown) if found else ()


def _found(parts: Parts, repo_id: str, task_id: str, git: Git) -> tuple[str, Changes] | None:
    """The head of the task's branch, and what differs from it; None for a worktree that was never finished."""
    site = site_of(parts, repo_id, task_id)
    if _was_never_finished(site):
        return None
    head = _head(git, task_id)
    changes = layout_of(site).find_changes(git, site, base_of(parts, repo_id, git, head), objects.tree_of(git, head))
    _require_all(changes)
    return head, changes


def _was_never_finished(site: Site) -> bool:
    """Nobody could edit it: the last thing made in a new worktree is the mask of its `.git`.

    Layers without a mount hold the mask in their upper directory; an empty one holds nothing at all.
    """
    if site.layers.is_dir():
        upper = site.layers / "upper"
        return not upper.is_dir() or not read_upper(upper, lambda _: False).entries
    return not os.path.lexists(site.root / ".git")


def _head(git: Git, task_id: str) -> str:
    """Where the task's branch is. Raises: `dirty_workspace` when that is gone too."""
    pattern = f"refs/heads/space-agent/{task_id}-*"
    listed = git.run("for-each-ref", "--format=%(objectname)", pattern).decode().split()
    if len(listed) != 1:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE,
            "Nobody knows what it started from",
            details=f"{len(listed)} branches of it in the cache clone",
        )
    return listed[0]


def _require_all(changes: Changes) -> None:
    """Temporary names of a killed edit are ours, and worth nothing."""
    theirs = [name for name in changes.rejected if not posixpath.basename(name).startswith(_OURS)]
    if theirs:
        raise SandboxError(ErrorCode.DIRTY_WORKSPACE, "It holds what no commit can", details=", ".join(theirs[:10]))


def _kept(parts: Parts, git: Git, place: tuple[str, str], changes: Changes) -> Saved:
    task_id, head = place
    tree = objects.build_tree(git, head, changes.tree)
    ref = f"refs/sandbox/{task_id}/rescued-{tree[:12]}"
    if objects.resolve_ref(git, ref) is not None:
        return Saved(ref)
    now = datetime.now(UTC)
    message = f"What was in the worktree of {task_id}, which had no usable record\n"
    commit = objects.commit_tree(git, tree, head, message, NEUTRAL.variables(now))
    objects.move_ref(git, ref, commit, "0" * len(commit))
    return Saved(ref, is_new=True)
