"""Use-cases on the working state of a task: status, diff and commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.files.names import EntryKind
from sandbox.files.tree import sha256_of_chunks
from sandbox.git import new_commits, objects, refs
from sandbox.git.blobs import stream_blobs
from sandbox.git.diff import DiffOutline, TreeDiff, compare_trees, find_lossy_paths, split_renames
from sandbox.git.entries import GITLINK, SYMLINK, RawChange, StoredCommit
from sandbox.git.lfs_pointers import is_pointer, select_lfs_paths
from sandbox.git.maintenance import store_objects
from sandbox.git.object_cache import combine_differences
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.scratch_trees import build_scratch_tree
from sandbox.lazy_module import LazyModule
from sandbox.models import Change, ChangeKind, CheckId, CommitResult, Diff, DiffFile, Status, Task, TaskStatus
from sandbox.policy.paths import RepoPath, parse_repo_path, path_bytes, show_path
from sandbox.store.home import Home
from sandbox.store.records import find_task, save_task
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.lifecycle import TaskComparison, compare_task, lock_task, require_approved_tree
from sandbox.workbench.tasks.worktrees import require_writable_disk
from sandbox.workspaces.changes import Changes, describe_left_out
from sandbox.workspaces.renames import merge_exact_renames

if TYPE_CHECKING:
    from sandbox.config import Settings
    from sandbox.policy import commit as commit_policies
    from sandbox.store import stop_requests
    from sandbox.workbench.controller import commit_identity
    from sandbox.workbench.tasks import impact
else:  # loaded at first use (docs/adr/0080)
    stop_requests = LazyModule("sandbox.store.stop_requests")
    impact = LazyModule("sandbox.workbench.tasks.impact")
    commit_policies = LazyModule("sandbox.policy.commit")
    commit_identity = LazyModule("sandbox.workbench.controller.commit_identity")

_log = logging.getLogger(__name__)

MESSAGE_BYTES = 64 * 1024
_KINDS = {
    "A": ChangeKind.ADDED,
    "D": ChangeKind.DELETED,
    "T": ChangeKind.TYPE_CHANGED,
    "R": ChangeKind.RENAMED,
}


def read_status(services: Services, task_id: str) -> Status:
    """Branch, commits and uncommitted changes."""
    task = find_task(services.home, task_id, allow_closed=True)
    with compare_task(services, task) as opened:
        found = build_status(opened)
    return found.model_copy(update={"running": _list_running_checks(services.home, task.id)})


def _list_running_checks(home: Home, task_id: str) -> tuple[CheckId, ...]:
    with suppress(FileNotFoundError):
        if any(entry.name.startswith(task_id) for entry in home.stop_requests.iterdir()):
            return stop_requests.list_running_checks(home.stop_requests, task_id)
    return ()


def build_status(opened: TaskComparison) -> Status:
    """The status of a task that has been compared already."""
    task = opened.task
    return Status(
        branch=task.branch,
        head_commit=task.head_commit,
        base_commit=task.base_commit,
        ahead=_count_ahead(opened.git, task),
        dirty=bool(opened.changes.tree),
        changes=_list_changes(opened),
        rejected=opened.changes.list_rejected(),
    )


def count_uncommitted(services: Services, task: Task) -> int | None:
    """The number of changes of the working state that the commit of `task` does not have. None if they cannot be read:
    what was found out about the commit is worth an answer without them.
    """
    try:
        with compare_task(services, task) as opened:
            return len(_list_changes(opened))
    except (SandboxError, OSError) as error:
        _log.info("the changes of %s were not counted: %s", task.id, describe_briefly(error))
        return None


def _count_ahead(git: Git, task: Task) -> int:
    if task.head_commit == task.base_commit:
        return 0
    return objects.count_commits(git, task.base_commit, task.head_commit)


def _list_changes(opened: TaskComparison) -> tuple[Change, ...]:
    return merge_exact_renames(opened.git, opened.task.head_commit, opened.changes)


def diff_task(services: Services, task_id: str, against: str) -> Diff:
    """Unified diff of the working state against the task's `base` or `head` commit."""
    if against not in {"base", "head"}:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A diff must be against 'base' or 'head'")
    task = find_task(services.home, task_id, allow_closed=True)
    with compare_task(services, task) as opened:
        git, changes = opened.git, opened.changes
        at_hand = {c.path: c.sha256 for c in changes.shown if c.sha256 is not None}
        before = task.base_commit if against == "base" else task.head_commit
        demand = demand_of_objects(changes.tree)
        with services.disk.admit(Writer.LOOK, demand), scratch_objects(git) as aside:
            difference = _compare_with_changes(aside, before, task.head_commit, changes)
        hashes = at_hand | _hash_files(git, [c for c in difference.changes if show_path(c.path) not in at_hand])
        files = tuple(_as_diff_file(c, difference.counts.get(c.path, (None, None)), hashes) for c in difference.changes)
        return Diff(
            text=difference.text.decode("utf-8", errors="replace"),
            files=files,
            truncated=not difference.complete,
            impact=impact.describe_changes(services, task, files),
            running=_list_running_checks(services.home, task.id),
            lossy=tuple(map(show_path, find_lossy_paths(difference))),
        )


def list_committed_files(repositories: RegisteredRepositories, task: Task) -> tuple[DiffFile, ...]:
    """Files that the task's commits changed since its base: a push sends these."""
    _, git = repositories.open(task.repo_id)
    found = compare_trees(git, task.base_commit, task.head_commit)
    return tuple(_as_diff_file(c, found.counts.get(c.path, (None, None)), {}) for c in found.changes)


def _compare_with_changes(git: Git, before: str, head: str, changes: Changes) -> TreeDiff:
    """Compare a commit with the head plus changes. If the commit is the head, this also verifies the built tree."""
    outline = changes.outline()
    if before != head:
        after = build_scratch_tree(git, head, changes.tree)
        moves = git.cache.differences.get((objects.tree_of(git, before), objects.tree_of(git, head)))
        longer = None if moves is None else DiffOutline(combine_differences(moves, outline.changes), outline.sizes)
        return compare_trees(git, before, after, outline=longer)
    after = build_scratch_tree(git, head, changes.tree, is_compared=True)
    difference = compare_trees(git, head, after, outline=outline)
    new_commits.require_intended_changes(split_renames(difference.changes), changes.tree)
    return difference


def _as_diff_file(change: RawChange, lines: tuple[int | None, int | None], hashes: dict[str, str]) -> DiffFile:
    path = show_path(change.path)
    return DiffFile(
        path=path,
        kind=_KINDS.get(change.status, ChangeKind.MODIFIED),
        old_path=None if change.old_path is None else show_path(change.old_path),
        additions=lines[0],
        deletions=lines[1],
        sha256=hashes.get(path) if change.new_oid else None,
    )


def _hash_files(git: Git, changes: Sequence[RawChange]) -> dict[str, str]:
    """Content hashes of committed files, all read by one git process."""
    present = [(c.path, c.new_oid) for c in changes if c.new_oid and c.new_mode != GITLINK]
    blobs = stream_blobs(git, [oid for _, oid in present])
    return {show_path(path): sha256_of_chunks(blob.chunks()) for (path, _), blob in zip(present, blobs, strict=True)}


def commit_task(
    services: Services,
    task_id: str,
    message: str,
    allow: Sequence[str] = (),
    expected_tree: str | None = None,
    *,
    reads_all: bool = False,
) -> CommitResult:
    """Commit the whole working state on the task's branch.

    `allow`: new files or folders to include even if they look like build output or are large; `.` includes all.
    `expected_tree`: the tree that was approved. `reads_all`: see `compare_task`.
    Raises, before anything is written: `nothing_to_commit`, `invalid_input`, `policy_violation`, also for changed files
    of Git LFS and for an ignored file in `allow`, `conflict`.
    """
    cleaned = clean_message(message)
    with lock_task(services, task_id) as task, compare_task(services, task, reads_all=reads_all) as opened:
        require_writable_disk(services.home, task)
        _require_none_ignored(opened, allow)
        if not opened.changes.tree:
            raise SandboxError(
                ErrorCode.NOTHING_TO_COMMIT,
                "The worktree has no changes",
                details=describe_left_out(opened.changes),
                hint="Edit a file before you commit.",
            )
        shown = _list_changes(opened)
        require_sources(services.policies, services.settings, opened.changes, shown, allow)
        _require_pointers(opened, allow)
        require_approved_tree(services, opened, expected_tree)  # before the objects of the commit are stored
        git = opened.git
        now, who = datetime.now(UTC), commit_identity.choose_identity(services.settings, services.git_operator)
        text = commit_identity.add_commit_trailers(services.settings, cleaned, task.id, who)
        with services.disk.admit(Writer.COMMIT, demand_of_objects(opened.changes.tree)), store_objects(git):
            stored = new_commits.build_commit(git, task.head_commit, opened.changes.tree, text, who.as_environment(now))
            _move_branch(git, task, stored)
        update = {"head_commit": stored.commit, "committed_at": now}
        if task.status is TaskStatus.WORKING:
            update["status"] = TaskStatus.COMMITTED
        save_task(services.home, task.model_copy(update=update))
        said = impact.describe_changes(services, task, shown)
        note = "; ".join(filter(None, (who.note, describe_left_out(opened.changes)))) or None
        return CommitResult(
            commit=stored.commit, tree=stored.tree, files=shown, author=str(who.author), note=note, impact=said
        )


def _move_branch(git: Git, task: Task, stored: StoredCommit) -> None:
    """Move the task's branch from the commit in the task's record, or from a child of it: a controller that was killed
    after its commit, before it saved the record, leaves such a child. Raises: `conflict` for any other commit.
    """
    branch = f"refs/heads/{task.branch}"
    try:
        refs.move_ref_to_stored(git, branch, stored, task.head_commit)
    except SandboxError:
        tip = refs.resolve_ref(git, branch)
        if tip is None or objects.parent_of(git, tip) != task.head_commit:
            raise
        refs.move_ref_to_stored(git, branch, stored, tip)


def require_sources(
    policies: Policies, settings: Settings, changes: Changes, shown: Sequence[Change], allow: Sequence[str] = ()
) -> None:
    """Require that no added file looks like build output, unless it is in `allow`. Raises: `policy_violation`."""
    added = {c.path for c in shown if c.kind is ChangeKind.ADDED}
    files = (
        commit_policies.AddedFile(path, c.content.size, c.content.start(commit_policies.START_BYTES))
        for c in changes.tree
        if c.content is not None and c.mode != SYMLINK and (path := show_path(c.path)) in added
    )
    commit_policies.require_sources(files, allow, policies.commits, settings.commit.max_file_bytes)


def _require_none_ignored(opened: TaskComparison, allow: Sequence[str]) -> None:
    """Require that no ignored file is in `allow`: the commit would be made without it. Raises: `policy_violation`."""
    changed = [show_path(c.path) for c in opened.changes.tree]
    named = [parse_repo_path(path.rstrip("/")) for path in allow if path != commit_policies.EVERYTHING]
    left_out = [path for path in named if not any(one == path or one.startswith(f"{path}/") for one in changed)]
    ignored = [path for path in left_out if _is_ignored(opened, path)]
    if ignored:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(ignored)} path(s) to commit are ignored; no commit was made",
            details="\n".join(ignored[:20]),
            hint="A .gitignore of the base commit, or `artifacts` of the profile, names them: use another path.",
        )


def _is_ignored(opened: TaskComparison, path: RepoPath) -> bool:
    """Whether an entry is there that the last commit lacks and the rules leave out."""
    kind = opened.files.kind(path)
    if kind is None or not opened.rules.is_ignored(path, directory=kind is EntryKind.DIRECTORY):
        return False
    head, raw = objects.tree_of(opened.git, opened.task.head_commit), path_bytes(path)
    return objects.find_blob(opened.git, head, raw) is None and objects.find_tree(opened.git, head, raw) is None


def _require_pointers(opened: TaskComparison, allow: Sequence[str]) -> None:
    """Require that no file of Git LFS was changed or added: its object would have to be uploaded, and a pointer without
    one, or the bytes in git, break the next clone. Raises: `policy_violation`.
    """
    if not opened.uses_lfs:
        return
    is_allowed = commit_policies.allow_paths(allow)
    changed = {
        c.path: c.content
        for c in opened.changes.tree
        if c.content is not None and c.content.size and c.mode != SYMLINK and not is_allowed(show_path(c.path))
    }
    kept = select_lfs_paths(opened.git, opened.task.head_commit, changed)
    named = sorted(show_path(path) for path in kept if not is_pointer(changed[path].start(commit_policies.START_BYTES)))
    if named:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(named)} changed file(s) belong to Git LFS, which the sandbox cannot upload to; no commit was made",
            details="\n".join(named[:20] + ([f"... and {len(named) - 20} more"] if len(named) > 20 else [])),
            hint=f"Change them where git-lfs is installed, or undo that here: `sandbox task restore {opened.task.id} "
            "head`. `allow` (--allow PATH on the command line) stores the bytes in git itself.",
        )


def clean_message(message: str) -> str:
    """A message without control characters. Raises: `invalid_input` for an empty or oversized one."""
    text = "".join(c for c in message.replace("\r\n", "\n") if c in "\n\t" or c.isprintable()).strip()
    if not text or len(text.encode()) > MESSAGE_BYTES:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A commit message must have 1 to {MESSAGE_BYTES} bytes of text")
    return text + "\n"
