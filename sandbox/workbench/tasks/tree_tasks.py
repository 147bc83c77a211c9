"""Tasks of kind `tree`: no file of theirs is on disk until a check needs one (docs/adr/0110).

Theory. The working state is a tree in the cache clone, with the ref `refs/sandbox/TASK/snapshots/working`; without that
ref it is the last commit. An edit reads and writes objects only. The first check, sync, checkout or clean lays out a
worktree with that state; from then on the task is as any other, and the ref is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from sandbox.files.tree import sha256_of_chunks
from sandbox.git import new_commits, objects, refs
from sandbox.git.blobs import stream_blob, stream_blobs
from sandbox.git.diff import blob_sizes, diff_trees
from sandbox.git.entries import GITLINK, Content, RawChange, TreeChange, TreeEntry
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.git.trees.tree_value import TreeValue, open_tree
from sandbox.models import Change, ChangeKind, Task
from sandbox.policy.paths import show_path
from sandbox.store.records import save_task
from sandbox.workbench.controller import commit_identity
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_objects, fetch_whole_tree
from sandbox.workbench.tasks.worktrees import is_without_files, locate_worktree, replace_worktree
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.tree_files import TreeFiles

_KINDS = {"A": ChangeKind.ADDED, "D": ChangeKind.DELETED, "T": ChangeKind.TYPE_CHANGED}


def find_working_tree(git: Git, task: Task) -> str:
    """The tree of the working state."""
    kept = refs.resolve_ref(git, _ref(task))
    return objects.tree_of(git, kept or task.head_commit)


def keep_working_tree(services: Services, git: Git, task: Task, tree: str) -> None:
    """Make a stored tree the working state. The caller holds the task's lock. Raises: `quota_exceeded`."""
    before = refs.resolve_ref(git, _ref(task))
    if tree == objects.tree_of(git, task.head_commit):
        if before is not None:
            refs.delete_ref(git, _ref(task), before)
        return
    identity = commit_identity.SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
    with services.disk.admit(Writer.EDIT, RECORD_DEMAND), store_objects(git):
        commit = new_commits.commit_tree(git, tree, task.head_commit, "Working state\n", identity)
        refs.move_ref(git, _ref(task), commit, before)


def forget_working_tree(git: Git, task: Task) -> None:
    """Drop the working state, for the last commit or a worktree."""
    if (before := refs.resolve_ref(git, _ref(task))) is not None:
        refs.delete_ref(git, _ref(task), before)


def open_working_tree(services: Services, task: Task) -> TreeValue:
    """The working state as a value; files that a partial clone lacks are fetched when they are read."""
    repository, git = services.repositories.open(task.repo_id)
    fetch = partial(fetch_objects, services, repository, git)
    value = open_tree(git, task.head_commit, default_branch=repository.default_branch, fetch=fetch)
    return value.restore(find_working_tree(git, task))


@contextmanager
def edit_working_tree(services: Services, task: Task) -> Iterator[TreeFiles]:
    """The files of the working state; what the block changes becomes the working state. The caller holds the lock."""
    value = open_working_tree(services, task)
    files = TreeFiles(value)
    with value.store.session():
        yield files
    if files.value is not value:
        files.value.snapshot()
        keep_working_tree(services, value.store.git, task, files.value.tree)


def find_tree_changes(git: Git, task: Task) -> Changes:
    """The difference from the task's head to its working state, from objects only."""
    found = diff_trees(git, objects.tree_of(git, task.head_commit), find_working_tree(git, task))
    described = _describe(git, sorted(found, key=lambda change: change.path))
    return Changes(
        tree=tuple(one.change for one in described),
        shown=tuple(one.shown for one in described),
        rejected=(),
        before={one.change.path: one.before for one in described if one.before is not None},
    )


@dataclass(frozen=True)
class _Described:
    change: TreeChange
    shown: Change
    before: TreeEntry | None


def _describe(git: Git, found: Sequence[RawChange]) -> list[_Described]:
    oids = {oid for change in found for oid in (change.old_oid, change.new_oid) if oid is not None}
    sizes = blob_sizes(git, oids)
    new = [c.new_oid for c in found if c.new_oid is not None and c.new_mode != GITLINK]
    hashes = dict(zip(new, (sha256_of_chunks(blob.chunks()) for blob in stream_blobs(git, new)), strict=True))
    return [_describe_one(git, change, sizes, hashes) for change in found]


def _describe_one(git: Git, raw: RawChange, sizes: dict[str, int], hashes: dict[str, str]) -> _Described:
    content = None
    if raw.new_oid is not None:
        content = Content(
            raw.new_oid, sizes.get(raw.new_oid, 0), partial(stream_blob, git, raw.new_oid), is_stored=True
        )
    before = None
    if raw.old_oid is not None:
        before = TreeEntry(raw.path, raw.old_mode, raw.old_oid, sizes.get(raw.old_oid))
    kind = _KINDS.get(raw.status, ChangeKind.MODIFIED)
    shown = Change(path=show_path(raw.path), kind=kind, sha256=hashes.get(raw.new_oid or ""))
    return _Described(TreeChange(raw.path, raw.new_mode, content), shown, before)


def lay_out_files(services: Services, task: Task) -> Task:
    """Give a task without files its worktree, with its working state; any other task is unchanged. The caller holds the
    task's lock. Raises: as `replace_worktree`; in a partial clone network errors.
    """
    if not is_without_files(task, locate_worktree(services.home, services.policies, task.repo_id, task.id)):
        return task
    repository, git = services.repositories.open(task.repo_id)
    below = fetch_whole_tree(services, repository, git, task.base_commit)
    replace_worktree(services, git, task, (below, find_working_tree(git, task)))
    update = {"worktree_path": services.home.worktree(task.repo_id, task.id)}
    saved = save_task(services.home, task.model_copy(update=update))
    forget_working_tree(git, task)
    return saved


def _ref(task: Task) -> str:
    return f"refs/sandbox/{task.id}/snapshots/working"
