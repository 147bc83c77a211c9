"""Save the changes of a worktree without a task as a commit under its own ref, before the worktree is deleted."""

from __future__ import annotations

import os
import posixpath
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.overlay_mounts import read_upper
from sandbox.git import new_commits, objects, refs
from sandbox.git.cache_clones import open_cache
from sandbox.git.contents import ContentSpool, spool_contents
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.policy.paths import RESERVED_PREFIX
from sandbox.workbench.controller.commit_identity import SANDBOX_IDENTITY
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_base
from sandbox.workbench.tasks.branch_names import list_branches
from sandbox.workbench.tasks.worktrees import locate_worktree
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.comparison_limits import ComparisonLimits, compare_within_memory
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.layout_choice import layout_of
from sandbox.workspaces.own_disk import open_upper

_OURS = RESERVED_PREFIX.decode()


@dataclass(frozen=True)
class RescueResult:
    """The ref that holds the changes of a worktree. `is_new`: the ref did not exist before."""

    ref: str = ""
    is_new: bool = False

    NO_CHANGES: ClassVar[RescueResult]

    @property
    def note(self) -> str:
        return f"its changes are in {self.ref}" if self.ref else ""


RescueResult.NO_CHANGES = RescueResult()


def rescue(services: Services, repo_id: str, task_id: str) -> RescueResult:
    """Commit the changes on top of the head of the task's branch, under `refs/sandbox/TASK/rescued-<tree>`.

    The caller holds the lock of the task. Raises: `dirty_workspace` if some file cannot be committed; errors of git.
    The worktree must be kept then.
    """
    git = open_cache(services.home.clone(repo_id), services.settings.git.executable)
    with spool_contents(git) as spool:
        find = partial(_find_changes, services, (repo_id, task_id), git, spool)
        with compare_within_memory(spool, find) as found:
            if not found or not found[1].tree:
                return RescueResult.NO_CHANGES
            return _commit_changes(git, (task_id, found[0]), found[1])


def forecast_rescue(services: Services, repo_id: str, task_id: str) -> tuple[str, ...]:
    """Names of the changed files that `rescue` would commit. Raises: as `rescue`."""
    git = open_cache(services.home.clone(repo_id), services.settings.git.executable)
    with spool_contents(git) as spool:
        find = partial(_find_changes, services, (repo_id, task_id), git, spool)
        with compare_within_memory(spool, find) as found:
            return tuple(change.path for change in found[1].shown) if found else ()


def _find_changes(
    services: Services, of: tuple[str, str], git: Git, spool: ContentSpool, limits: ComparisonLimits
) -> tuple[str, Changes] | None:
    """The head of the task's branch and the changes against it; None for a worktree that was never completed. `of`:
    repository and task.
    """
    home, policies = services.home, services.policies
    repo_id, task_id = of
    site = locate_worktree(home, policies, repo_id, task_id)
    if _is_unfinished(site):
        return None
    head = _find_head(git, task_id)
    changes = layout_of(site).find_changes(
        git, site, load_base(home, policies, repo_id, git, head), objects.tree_of(git, head), spool, limits
    )
    _require_committable(changes)
    return head, changes


def _is_unfinished(site: WorktreePaths) -> bool:
    """Whether the creation of the worktree was cut off, so it has no edits: the mask of its `.git` is created last.

    Layers without a mount have the mask in their upper directory; in an unfinished worktree that directory is empty.
    """
    if site.layers.is_dir():
        with open_upper(site.layers) as upper:
            return not upper.is_dir() or not read_upper(upper, lambda _: False).entries
    return not os.path.lexists(site.root / ".git")


def _find_head(git: Git, task_id: str) -> str:
    """The commit of the task's branch. Raises: `dirty_workspace` when the branch is gone too."""
    listed = list_branches(git, task_id)
    if len(listed) != 1:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE,
            "The commit that it started from is unknown",
            details=f"{len(listed)} branches of the task in the cache clone",
        )
    return listed[0]


def _require_committable(changes: Changes) -> None:
    """Require that all changes can be committed, except temporary files of a killed edit of ours."""
    theirs = [name for name in changes.rejected if not posixpath.basename(name).startswith(_OURS)]
    if theirs:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE, "It has files that cannot be committed", details=", ".join(theirs[:10])
        )


def _commit_changes(git: Git, task_and_head: tuple[str, str], changes: Changes) -> RescueResult:
    task_id, head = task_and_head
    tree = new_commits.build_tree(git, head, changes.tree)
    ref = f"refs/sandbox/{task_id}/rescued-{tree[:12]}"
    if refs.resolve_ref(git, ref) is not None:
        return RescueResult(ref)
    now = datetime.now(UTC)
    message = f"What was in the worktree of {task_id}, which had no usable record\n"
    commit = new_commits.commit_tree(git, tree, head, message, SANDBOX_IDENTITY.as_environment(now))
    refs.move_ref(git, ref, commit, None)
    return RescueResult(ref, is_new=True)
