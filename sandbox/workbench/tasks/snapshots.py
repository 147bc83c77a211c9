"""Use-cases on saved states: snapshot, restore, fork, create from. A state is a git tree, so it costs what changed.

A snapshot is a commit of the working state on the task's head, under `refs/sandbox/<task>/snapshots/<id>` in the cache
clone. Pushes name one commit and one branch, so these refs never leave this host.

The newest snapshot is what a task without a worktree gets back. A state that was kept before is not kept twice, so the
newest by its id may be an older state: then `refs/sandbox/<task>/latest` leads to the commit of the state kept last.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects, refs
from sandbox.git.entries import StoredCommit
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.scratch_trees import compute_tree_id
from sandbox.lazy_module import LazyModule
from sandbox.models import RestoreResult, Snapshot, Task, TaskOptions, WorkspaceKind
from sandbox.store.home import Home
from sandbox.store.records import find_task, not_found_error
from sandbox.workbench.controller.commit_identity import SANDBOX_IDENTITY
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.disk_demands import demand_of_difference, demand_of_objects
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.tasks.lifecycle import (
    ForkOrigin,
    TaskComparison,
    compare_task,
    create_task,
    lock_task,
    require_approved_tree,
)
from sandbox.workbench.tasks.snapshot_commits import BASE_KEY
from sandbox.workbench.tasks.status import build_status
from sandbox.workbench.tasks.tree_tasks import keep_working_tree
from sandbox.workbench.tasks.worktrees import is_without_files, require_writable_disk
from sandbox.workspaces.restore import RestoreSource, restore_tree

if TYPE_CHECKING:
    from sandbox.workbench.tasks import forked_artifacts
else:  # loaded at first use (docs/adr/0080)
    forked_artifacts = LazyModule("sandbox.workbench.tasks.forked_artifacts")

LABEL_LENGTH = 200
_ID = re.compile(r"^snap-([0-9a-f]{13})-[0-9a-f]{6}$")
_FIELDS = (
    "%(refname:lstrip=4)%00%(objectname)%00%(tree)%00%(parent)%00%(contents:subject)"
    f"%00%(trailers:key={BASE_KEY},valueonly,separator=%2C)"
)
_NO_LABEL = "-"
_BEFORE_RESTORE = "before a restore"
BEFORE_CLEAN = "before a clean"
BEFORE_MOVE = "before a sync or checkout"
_REUSING_LABELS = {"", _BEFORE_RESTORE, BEFORE_CLEAN, BEFORE_MOVE}
_COMMIT_NAMES = {"head", "base"}


@dataclass(frozen=True)
class _SnapshotOnHead:
    """A snapshot, and the task's head and base when it was taken. `base`: None for a snapshot of an older version."""

    snapshot: Snapshot
    head: str
    base: str | None


@dataclass(frozen=True)
class _KeptStates:
    """The snapshots of a task, oldest first. `latest`: where the ref of that name leads; None without it."""

    snapshots: tuple[_SnapshotOnHead, ...]
    latest: str | None

    def find_newest(self, head: str) -> Snapshot | None:
        """The snapshot on this head with the highest id."""
        return next((kept.snapshot for kept in reversed(self.snapshots) if kept.head == head), None)


def take_snapshot(services: Services, task_id: str, label: str = "", *, reads_all: bool = False) -> Snapshot:
    """Save the working state. If a snapshot of it exists, with the same label if one is given, return that one.

    `reads_all`: see `compare_task`.
    """
    clean = _clean_label(label)
    with lock_task(services, task_id) as task, compare_task(services, task, reads_all=reads_all) as opened:
        return keep_snapshot(services, opened, clean)


def _clean_label(label: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in label).split())
    if len(text) > LABEL_LENGTH:
        brief = f"A label must have at most {LABEL_LENGTH} characters"
        raise SandboxError(ErrorCode.INVALID_INPUT, brief, hint=f"Shorten it: it has {len(text)}.")
    return text


def keep_snapshot(services: Services, opened: TaskComparison, label: str) -> Snapshot:
    """A snapshot of the state in `opened`. With one of our own labels, any existing snapshot of the state will do.

    Raises: `quota_exceeded` when the disk has no room for it.
    """
    task, git = opened.task, opened.git
    with services.disk.admit(Writer.SNAPSHOT, demand_of_objects(opened.changes.tree)):
        kept = _read_kept_states(git, task.id)
        same = _find_same_state(opened, kept, label)
        if same is None:
            with store_objects(git):
                same = _store_snapshot(opened, kept, label)
        note_latest_state(git, task, same.commit, kept)
        return same.model_copy(update={"rejected": opened.changes.list_rejected()})


def _store_snapshot(opened: TaskComparison, kept: _KeptStates, label: str) -> Snapshot:
    task, git, now = opened.task, opened.git, datetime.now(UTC)
    stored = new_commits.build_commit(git, task.head_commit, opened.changes.tree, *_describe(task, label, now))
    return _store_ref(git, task, stored, label, _draw_id(now, kept))


def note_latest_state(git: Git, task: Task, commit: str, kept: _KeptStates | None = None) -> None:
    """Note which state of a task was kept or asked for last: it gets this one back if it loses its worktree. `commit`:
    of a snapshot, or the task's head for no changes. `kept`: as read before a snapshot was stored.
    """
    if kept is None:
        kept = _read_kept_states(git, task.id)
    newest = kept.find_newest(task.head_commit)
    is_known = any(one.snapshot.commit == commit for one in kept.snapshots) or commit == task.head_commit
    wanted = commit if is_known and newest is not None and newest.commit != commit else None
    if wanted == kept.latest:
        return
    if wanted is not None:
        refs.move_ref(git, _latest_ref(task.id), wanted, kept.latest)
    elif kept.latest is not None:
        refs.delete_ref(git, _latest_ref(task.id), kept.latest)


def keep_tree(services: Services, git: Git, task: Task, tree: str, label: str) -> Snapshot:
    """A snapshot of a task with a stored tree, which need not be its working state. Raises: `quota_exceeded`."""
    clean = _clean_label(label[:LABEL_LENGTH])
    with services.disk.admit(Writer.SNAPSHOT, RECORD_DEMAND), store_objects(git):
        return _store_tree(git, task, tree, clean)


def _store_tree(git: Git, task: Task, tree: str, label: str) -> Snapshot:
    now = datetime.now(UTC)
    commit = new_commits.commit_tree(git, tree, task.head_commit, *_describe(task, label, now))
    snapshot_id = _draw_id(now, _read_kept_states(git, task.id))
    return _store_ref(git, task, StoredCommit(commit, tree), label, snapshot_id)


def _describe(task: Task, label: str, now: datetime) -> tuple[str, dict[str, str]]:
    """Message and identity of a snapshot's commit."""
    return f"{label or _NO_LABEL}\n\n{BASE_KEY}: {task.base_commit}\n", SANDBOX_IDENTITY.as_environment(now)


def _draw_id(now: datetime, kept: _KeptStates) -> str:
    """An id after those of all older snapshots, also if the clock was set back since."""
    newest_us = max((_read_time_us(one.snapshot.id) for one in kept.snapshots), default=0)
    return f"snap-{max(int(now.timestamp() * 1e6), newest_us + 1):013x}-{secrets.token_hex(3)}"


def _read_time_us(snapshot_id: str) -> int:
    found = _ID.fullmatch(snapshot_id)
    return int(found[1], 16) if found else 0


def _read_time(snapshot_id: str) -> datetime:
    return datetime.fromtimestamp(_read_time_us(snapshot_id) / 1e6, UTC)


def _store_ref(git: Git, task: Task, stored: StoredCommit, label: str, snapshot_id: str) -> Snapshot:
    refs.move_ref(git, f"{_ref_prefix(task.id)}{snapshot_id}", stored.commit, None)
    taken = _read_time(snapshot_id)
    return Snapshot(id=snapshot_id, tree=stored.tree, commit=stored.commit, created_at=taken, label=label)


def _find_same_state(opened: TaskComparison, kept: _KeptStates, label: str) -> Snapshot | None:
    """The newest snapshot of this state on this head that may stand for a snapshot with this label."""
    head = opened.task.head_commit
    listed = (one for one in reversed(kept.snapshots) if one.head == head)
    fitting = [one.snapshot for one in listed if label in {*_REUSING_LABELS, one.snapshot.label}]
    if not fitting:
        return None
    tree = compute_tree_id(opened.git, head, opened.changes.tree)
    return next((snapshot for snapshot in fitting if snapshot.tree == tree), None)


def _ref_prefix(task_id: str) -> str:
    return f"refs/sandbox/{task_id}/snapshots/"


def _latest_ref(task_id: str) -> str:
    return f"refs/sandbox/{task_id}/latest"


def list_snapshots(home: Home, repositories: RegisteredRepositories, task_id: str) -> tuple[Snapshot, ...]:
    """Snapshots of a task, oldest first; also of a closed task."""
    task = find_task(home, task_id, allow_closed=True)
    return tuple(kept.snapshot for kept in _read_kept_states(repositories.open(task.repo_id)[1], task.id).snapshots)


def _read_kept_states(git: Git, task_id: str) -> _KeptStates:
    places = (_ref_prefix(task_id), _latest_ref(task_id))
    out = git.run("for-each-ref", f"--format={_FIELDS}", "--sort=refname", *places)
    rows = [line.split("\0") for line in out.decode("utf-8", errors="replace").splitlines()]
    snapshots = tuple(
        _SnapshotOnHead(_parse_row(row), row[3], row[5] if objects.is_object_id(row[5]) else None)
        for row in rows
        if _ID.fullmatch(row[0])
    )
    return _KeptStates(snapshots, next((row[1] for row in rows if not row[0]), None))


def _parse_row(row: list[str]) -> Snapshot:
    name, commit, tree, _, label, _ = row
    return Snapshot(
        id=name,
        tree=tree,
        commit=commit,
        created_at=_read_time(name),
        label="" if label == _NO_LABEL else label,
    )


def find_newest_on_head(git: Git, task: Task) -> Snapshot | None:
    """The task's last snapshot; None if there is none since its last commit, or if it was made to have no changes."""
    kept = _read_kept_states(git, task.id)
    if kept.latest == task.head_commit:
        return None
    last = (
        one.snapshot for one in kept.snapshots if (one.head, one.snapshot.commit) == (task.head_commit, kept.latest)
    )
    return next(last, None) or kept.find_newest(task.head_commit)


def _find_snapshot(git: Git, task: Task, snapshot_id: str) -> _SnapshotOnHead:
    """A snapshot of this task. Raises: `not_found`, also for a snapshot of another task."""
    known = {kept.snapshot.id: kept for kept in _read_kept_states(git, task.id).snapshots}
    if snapshot_id not in known:
        hint = f"`sandbox task snapshots {task.id}` shows all; `head` and `base` name the task's commits."
        raise not_found_error("snapshot", snapshot_id, reversed(known), hint, in_order=True)
    return known[snapshot_id]


def restore_state(services: Services, task_id: str, state: str, expected_tree: str | None = None) -> RestoreResult:
    """Make the worktree equal to a snapshot of the task, or to its `head` or `base` commit.

    The current state is saved as a snapshot first. Ignored files stay; the branch does not move. `expected_tree`: the
    working state that was approved. Raises: `not_found`; `conflict` for another working state; and the errors of
    `workspaces.restore`, which leave the worktree unchanged.
    """
    with lock_task(services, task_id) as task:
        with compare_task(services, task) as opened:
            require_writable_disk(services.home, task)
            require_approved_tree(services, opened, expected_tree)
            target = _find_target_tree(opened.git, task, state)
            previous = keep_snapshot(services, opened, _BEFORE_RESTORE)
            left_out = opened.changes.rejected
            if is_without_files(task, opened.site):
                keep_working_tree(services, opened.git, task, target)
                return _describe_restored(services, task, target, previous)
            large = find_large_files(services, task.repo_id, opened.git, (previous.tree, target))
            with services.disk.admit(Writer.RESTORE, demand_of_difference(opened.git, previous.tree, target, large)):
                source = RestoreSource(opened.git, large)
                restore_tree(source, opened.files, previous.tree, target, opened.owner, left_out)
        return _describe_restored(services, task, target, previous)


def _describe_restored(services: Services, task: Task, target: str, previous: Snapshot) -> RestoreResult:
    with compare_task(services, task) as opened:
        return RestoreResult(**dict(build_status(opened)), tree=target, previous=previous)


def _find_target_tree(git: Git, task: Task, state: str) -> str:
    if state in _COMMIT_NAMES:
        return objects.tree_of(git, task.head_commit if state == "head" else task.base_commit)
    if state in {task.head_commit, task.base_commit}:
        return objects.tree_of(git, state)
    return _find_snapshot(git, task, state).snapshot.tree


@dataclass(frozen=True)
class ForkRequest:
    """What a new task continues from: a snapshot, or the present state. `prompt`, `options`: None: those of the task.
    `with_artifacts`: it also gets the build output of the task's worktree. `new_id`: drawn elsewhere. `expected_tree`:
    the present state that was approved.
    """

    snapshot: str | None = None
    prompt: str | None = None
    with_artifacts: bool = False
    new_id: str = ""
    options: TaskOptions | None = None
    expected_tree: str | None = None


def fork_task(services: Services, task_id: str, wanted: ForkRequest) -> Task:
    """A new task that continues from a snapshot, or from the current working state.

    Its branch starts at the head that the state belongs to, so it has the same uncommitted changes. While a check runs
    in the task, only a snapshot can be forked, not the current state (`conflict`). Raises: `invalid_input` for build
    output of a snapshot, which has none.
    """
    if wanted.snapshot is not None and wanted.with_artifacts:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A snapshot has no build output",
            hint="Fork the present state, without naming a snapshot, or leave out the build output.",
        )
    if wanted.snapshot is not None:
        task = find_task(services.home, task_id, allow_closed=True)
        git = services.repositories.open(task.repo_id)[1]
        kept = _find_snapshot(git, task, wanted.snapshot)
        origin = ForkOrigin(task, kept.head, kept.snapshot.tree, git, kept.base or task.base_commit, wanted.new_id)
        return _create_fork(services, origin, wanted, task.workspace_kind)
    with (
        lock_task(services, task_id) as task,
        compare_task(services, task) as opened,
        services.disk.admit(Writer.LOOK, demand_of_objects(opened.changes.tree)),
        scratch_objects(opened.git) as git,
    ):
        require_approved_tree(services, opened, wanted.expected_tree)
        tree = new_commits.build_tree(git, task.head_commit, opened.changes.tree)
        kind = WorkspaceKind.TREE if is_without_files(task, opened.site) else WorkspaceKind.WORKTREE
        origin = ForkOrigin(task, task.head_commit, tree, git, task.base_commit, wanted.new_id)
        made = _create_fork(services, origin, wanted, kind)
        if wanted.with_artifacts and made.workspace_kind is WorkspaceKind.WORKTREE:
            forked_artifacts.share_artifacts(services, opened, made)
        return made


def create_from_snapshot(services: Services, repo_id: str, snapshot_id: str, prompt: str, options: TaskOptions) -> Task:
    """A new task of the repository that continues from a snapshot of any of its tasks, also of closed ones.

    Raises: `not_found`, also for a snapshot of another repository.
    """
    git = services.repositories.open(repo_id)[1]
    task = find_task_of_snapshot(services, repo_id, snapshot_id)
    kept = _find_snapshot(git, task, snapshot_id)
    origin = ForkOrigin(task, kept.head, kept.snapshot.tree, git, kept.base or task.base_commit)
    return _create_fork(services, origin, ForkRequest(snapshot_id, prompt, options=options), task.workspace_kind)


def find_task_of_snapshot(services: Services, repo_id: str, snapshot_id: str) -> Task:
    """The task of the repository that has a snapshot, also a closed one. Raises: `not_found`."""
    git = services.repositories.open(repo_id)[1]
    listed = git.run("for-each-ref", "--format=%(refname)", "refs/sandbox/*/snapshots/*").decode().split()
    owners = {name: task_id for _, _, task_id, _, name in (ref.split("/") for ref in listed)}
    if snapshot_id not in owners:
        raise not_found_error("snapshot", snapshot_id, owners, "`sandbox task snapshots TASK` shows those of a task.")
    return find_task(services.home, owners[snapshot_id], allow_closed=True)


def find_base_of_snapshot(services: Services, repo_id: str, snapshot_id: str, task_id: str | None) -> str:
    """The commit that a task which continues from a snapshot is based on. `task_id`: the snapshot is of this
    task; None: of any of the repository. Raises: `not_found`.
    """
    git = services.repositories.open(repo_id)[1]
    if task_id is None:
        task = find_task_of_snapshot(services, repo_id, snapshot_id)
    else:
        task = find_task(services.home, task_id, allow_closed=True)
    return _find_snapshot(git, task, snapshot_id).base or task.base_commit


def _create_fork(services: Services, origin: ForkOrigin, wanted: ForkRequest, kind: str) -> Task:
    """`kind`: of a fork without options."""
    task = origin.task
    text = task.prompt if wanted.prompt is None else wanted.prompt
    chosen = wanted.options or TaskOptions(workspace_kind=kind)
    options = chosen.model_copy(update={"profile": chosen.profile or task.profile})
    return create_task(services, task.repo_id, text, task.base_branch, origin, options)
