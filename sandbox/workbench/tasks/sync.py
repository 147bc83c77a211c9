"""Use-cases that move a task to another commit: `sync` merges with a newer base, `checkout` starts from elsewhere.

The merge works on git objects. Only when it is complete, the worktree is changed, then the branch is moved, then the
record is written; a sync with open conflicts changes none of them (docs/adr/0069). Uncommitted changes are saved as a
snapshot first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects, refs
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.contents import content_of
from sandbox.git.entries import Content
from sandbox.git.log import is_published, is_published_except
from sandbox.git.maintenance import store_objects
from sandbox.git.merge import Side, TreeConflict, TreeMerge, find_merge_base, merge_trees, resolve_conflicts
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.models import (
    CheckoutResult,
    ConflictKind,
    ConflictResolution,
    ConflictSide,
    MergeConflict,
    Repository,
    Snapshot,
    SyncResult,
    SyncState,
    Task,
    TaskStatus,
)
from sandbox.policy.paths import path_bytes, show_path
from sandbox.policy.writes import parse_writable_path
from sandbox.store.records import save_task
from sandbox.text import one_line
from sandbox.workbench.controller.commit_identity import add_commit_trailers, choose_identity
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.disk_demands import demand_of_difference
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.repositories.submodules import find_submodules
from sandbox.workbench.tasks.branch_names import ALL_BRANCHES
from sandbox.workbench.tasks.conflict_texts import MERGED_TEXTS, describe_hidden_texts, read_conflict_text
from sandbox.workbench.tasks.lifecycle import (
    TaskComparison,
    compare_task,
    find_start,
    is_on_remote,
    lock_task,
    require_approved_tree,
)
from sandbox.workbench.tasks.pending_moves import begin_move, end_move, finish_move
from sandbox.workbench.tasks.snapshots import BEFORE_MOVE, keep_snapshot
from sandbox.workbench.tasks.status import build_status
from sandbox.workbench.tasks.tree_tasks import lay_out_files
from sandbox.workbench.tasks.worktrees import require_writable_disk
from sandbox.workspaces.restore import RestoreSource, restore_tree

if TYPE_CHECKING:
    from sandbox.git import shallow
else:  # loaded at first use (docs/adr/0080)
    shallow = LazyModule("sandbox.git.shallow")

_REWRITTEN = "The remote was rewritten: it dropped the task's base, and the task has none of its commits any more"
_KINDS = {
    (True, True, True): ConflictKind.BOTH_MODIFIED,
    (False, True, True): ConflictKind.BOTH_ADDED,
    (True, False, False): ConflictKind.BOTH_DELETED,
    (False, True, False): ConflictKind.ADDED_BY_US,
    (False, False, True): ConflictKind.ADDED_BY_THEM,
    (True, False, True): ConflictKind.DELETED_BY_US,
    (True, True, False): ConflictKind.DELETED_BY_THEM,
}


RequireChoice = Callable[[Task, str], None]
"""Called with the task and the commit that becomes its base, before anything is changed; raises `conflict` if a person
has to be asked about the task's profile there.
"""


@dataclass(frozen=True)
class _Goal:
    """The commit that a task moves to, and the branch that its pull request would go to. `is_on_remote`: as
    `Task.base_on_remote`.
    """

    commit: str
    base_branch: str
    is_on_remote: bool


def sync_task(
    services: Services,
    task_id: str,
    onto: str | None = None,
    resolutions: Sequence[ConflictResolution] = (),
    expected_tree: str | None = None,
    require_choice: RequireChoice | None = None,
) -> SyncResult:
    """Merge a newer base into the task. `onto`: a branch, which becomes the task's base branch, or a commit of its base
    branch; default: the base branch as of the last fetch. `expected_tree`: the working state that was approved.
    `require_choice`: see `RequireChoice`.

    A branch that the task has already becomes its base too, if that is another commit; so does any goal for a base that
    is on no branch or tag of the remote but those of tasks.
    The task's own commits stay: a merge commit is made on top. Without own commits the branch moves, and uncommitted
    changes are merged, also where the remote was rewritten. With conflicts that have no resolution the task stays as it
    is. Raises: `dirty_workspace` for uncommitted changes on top of own commits; `stale_hash` for a resolution of
    another conflict; `conflict`, also for own commits on a base that the remote has dropped; `not_found`,
    `invalid_input`, `unsafe_path`, `quota_exceeded`.
    """
    answers = _index_resolutions(resolutions)
    with lock_task(services, task_id) as locked:
        task = lay_out_files(services, locked)
        repository, git = services.repositories.open(task.repo_id)
        goal = _find_sync_goal(git, repository, task, onto)
        if require_choice is not None:
            require_choice(task, goal.commit)
        is_rewritten = _is_rewritten(git, task, goal.commit)
        if is_rewritten:
            _require_nothing_to_replay(task, goal)
        base = task.base_commit if is_rewritten else find_merge_base(git, task.head_commit, goal.commit)
        _require_usable(services, repository, git, task, goal)
        fetch_whole_tree(services, repository, git, base)
        with compare_task(services, task) as opened:
            require_approved_tree(services, opened, expected_tree)
            if not is_rewritten and objects.is_ancestor(git, goal.commit, task.head_commit):
                if _is_base_elsewhere(git, task, goal):
                    return _move_base(services, task, goal)
                return SyncResult(**dict(build_status(opened)), state=SyncState.UP_TO_DATE, onto=goal.commit)
            done = _merge_and_move(services, opened, (base, goal), answers)
            return done.model_copy(update={"note": _join_notes(_REWRITTEN, done.note)}) if is_rewritten else done


def _join_notes(*notes: str) -> str:
    return ". ".join(filter(None, notes))


def _is_rewritten(git: Git, task: Task, commit: str) -> bool:
    """Whether the remote had the task's base, and has it on no branch and no tag any more: a force push removed it, or
    its branch was deleted. What is on the way to it must not be published again. Raises: `conflict` where a shallow
    history may hide it.
    """
    if (
        not task.base_on_remote
        or objects.is_ancestor(git, task.base_commit, commit)
        or is_published_except(git, task.base_commit, ALL_BRANCHES)
    ):
        return False
    shallow.require_whole_history(git, commit, f"^{task.base_commit}")
    return True


def _require_nothing_to_replay(task: Task, goal: _Goal) -> None:
    """Own commits have the removed ones below them, and no commit is rewritten (docs/adr/0193). Raises: `conflict`."""
    if task.head_commit == task.base_commit:
        return
    raise SandboxError(
        ErrorCode.CONFLICT,
        f"The remote was rewritten: it has {task.base_commit[:12]}, the base of {task.id}, on no branch any more",
        details="A merge would publish again what was removed there: the task's commits are on top of it.",
        hint=_describe_new_start(task, goal.base_branch),
        reason="upstream_rewritten",
        data={"base_commit": task.base_commit, "onto": goal.commit},
    )


def _describe_new_start(task: Task, base: str) -> str:
    return (
        f"Start again, and bring the changes along: `sandbox diff {task.id}` shows them, `sandbox task create "
        f"{task.repo_id} --base {base}` makes a task, and `sandbox file patch` applies them there."
    )


def _is_base_elsewhere(git: Git, task: Task, goal: _Goal) -> bool:
    """Whether the gate may refuse the task's base as it is not that of the goal, which the task has already."""
    if not is_published_except(git, task.base_commit, ALL_BRANCHES):
        return True
    tip = refs.resolve_ref(git, f"refs/remotes/origin/{goal.base_branch.removeprefix('refs/heads/')}")
    return goal.commit == tip != task.base_commit


def _move_base(services: Services, task: Task, goal: _Goal) -> SyncResult:
    """A task that began at a pull request, or at another branch, has all of the goal already. Its base becomes the
    goal, so that the request's commits are among its own, and the gate asks for the goal's checks, and compares with
    it. No file changes.
    """
    moved = save_task(services.home, task.model_copy(update=_describe_move(task, goal, task.head_commit)))
    with compare_task(services, moved) as after:
        status = dict(build_status(after))
        return SyncResult(**status, state=SyncState.SYNCED, onto=goal.commit, note=_name_other_base(moved))


def _merge_and_move(
    services: Services, opened: TaskComparison, between: tuple[str, _Goal], answers: Mapping[bytes, ConflictResolution]
) -> SyncResult:
    """`between`: the merge base, and the goal."""
    task, git = opened.task, opened.git
    base, goal = between
    is_forward = base == task.head_commit
    _require_mergeable(opened, is_forward=is_forward)
    previous = _keep_changes(services, opened)
    ours = previous.tree if previous else objects.tree_of(git, task.head_commit)
    with services.disk.admit(Writer.COMMIT, demand_of_difference(git, base, goal.commit)), store_objects(git):
        merge = merge_trees(git, base, ours, goal.commit)
        tree, open_conflicts = _resolve(services, task, git, merge, answers)
        if open_conflicts:
            shown = tuple(_show_conflicts(git, merge, open_conflicts))
            status, note = dict(build_status(opened)), describe_hidden_texts(shown)
            found = SyncResult(**status, state=SyncState.CONFLICTS, onto=goal.commit, previous=previous, note=note)
            return found.model_copy(update={"conflicts": shown})
    source = _open_source(services, opened, ours, tree)
    with services.disk.admit(Writer.COMMIT, RECORD_DEMAND), store_objects(git):
        head = goal.commit if is_forward else _commit_merge(services, task, git, tree, goal)
        update = _describe_move(task, goal, head)
        moved = _move(services, opened, source, (ours, tree), task.model_copy(update=update))
    with compare_task(services, moved) as after:
        status, note = dict(build_status(after)), _name_other_base(moved)
        return SyncResult(**status, state=SyncState.SYNCED, onto=goal.commit, previous=previous, note=note)


def _name_other_base(task: Task) -> str:
    """What a sync cannot change: it may change no other host."""
    base = task.base_branch.removeprefix("refs/heads/")
    if task.pr_base in {None, base}:
        return ""
    known = one_line(task.pr_base or "")
    return (
        f"The pull request {task.pr_url} still goes into {known}: change its base to {base} on the forge, until then "
        "no push reaches it"
    )


def checkout_task(
    services: Services,
    task_id: str,
    ref: str,
    expected_tree: str | None = None,
    require_choice: RequireChoice | None = None,
    *,
    published: bool = False,
) -> CheckoutResult:
    """Move a task without commits of its own to a branch, tag, commit or pull request of its repository.

    Uncommitted changes are applied there, after a snapshot. `expected_tree`, `require_choice`: as in `sync_task`.
    `published`: refuse a commit that no branch and no tag of the remote has. Raises: `conflict`, with the paths, if
    they do not apply, or if the task has commits of its own; `not_found`, `invalid_input`, `unsafe_path`,
    `quota_exceeded`.
    """
    with lock_task(services, task_id) as locked:
        task = lay_out_files(services, locked)
        repository, git = services.repositories.open(task.repo_id)
        _require_other_branch(task, ref)
        commit, branch = find_start(services, repository, git, ref)
        goal = _Goal(commit, branch, is_on_remote(git, ref, commit))
        if require_choice is not None:
            require_choice(task, commit)
        if published:
            _require_published(git, ref, goal)
        _require_no_own_commits(git, task, goal)
        _require_usable(services, repository, git, task, goal)
        with compare_task(services, task) as opened:
            require_approved_tree(services, opened, expected_tree)
            require_writable_disk(services.home, task)
            previous = _keep_changes(services, opened)
            ours = previous.tree if previous else objects.tree_of(git, task.head_commit)
            with (
                services.disk.admit(Writer.COMMIT, demand_of_difference(git, ours, goal.commit)),
                store_objects(git),
            ):
                tree = _apply_changes(git, task, ours, goal)
            source = _open_source(services, opened, ours, tree)
            with store_objects(git):
                update = _describe_move(task, goal, goal.commit)
                moved = _move(services, opened, source, (ours, tree), task.model_copy(update=update))
        with compare_task(services, moved) as after:
            return CheckoutResult(**dict(build_status(after)), base_branch=goal.base_branch, previous=previous)


def _find_sync_goal(git: Git, repository: Repository, task: Task, onto: str | None) -> _Goal:
    """Only a branch can become the base without a look: what the base has, no later question to a person shows. Raises:
    `invalid_input` for a commit that is not on the task's base branch; `not_found`.
    """
    name = onto or task.base_branch
    name = repository.default_branch if name == "HEAD" else name
    if onto is None:
        require_base_branch(git, repository, task, name)
    commit = resolve_commit(git, name, repository.default_branch)
    _require_other_branch(task, name)
    if refs.resolve_ref(git, f"refs/remotes/origin/{name}") is not None:
        return _Goal(commit, name, is_on_remote(git, name, commit))
    tip = refs.resolve_ref(git, f"refs/remotes/origin/{task.base_branch}")
    if tip is not None and objects.is_ancestor(git, commit, tip):
        return _Goal(commit, task.base_branch, is_on_remote(git, task.base_branch, commit))
    raise SandboxError(
        ErrorCode.INVALID_INPUT,
        f"'{name[:100]}' is not a branch, and not a commit of the task's base branch '{task.base_branch}'",
        hint="Name a branch to merge with: it becomes the task's base branch.",
    )


def require_base_branch(git: Git, repository: Repository, task: Task, name: str) -> None:
    """A branch that was renamed or deleted on the remote: which one takes its place, the caller says. Tags and commits
    are bases, too. Raises: `not_found`.
    """
    default = repository.default_branch
    try:
        resolve_commit(git, name, default)
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND or default == name:
            raise
        way = f"`sandbox task sync {task.id} --onto {default}` continues on the default branch, or name another one."
        if task.head_commit != task.base_commit and _is_rewritten(git, task, resolve_commit(git, default, default)):
            way = _describe_new_start(task, default)  # a squash merge leaves its commits on no branch
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The remote has no branch '{name[:100]}' any more, which is the base of {task.id}",
            details=error.details,
            hint=f"It was renamed or deleted. {way}",
        ) from error


def _require_other_branch(task: Task, name: str) -> None:
    """On top of itself the task would have no changes to show. Raises: `invalid_input`."""
    if name == task.branch:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A task cannot start from its own branch on the remote",
            hint="`sandbox task restore TASK head` undoes uncommitted changes.",
        )


def _require_usable(services: Services, repository: Repository, git: Git, task: Task, goal: _Goal) -> None:
    """Fetch what a partial clone lacks, and measure the tree, before anything is changed. Raises: `quota_exceeded`;
    `conflict` for other submodules: their files are laid out once, with the worktree (docs/adr/0072).
    """
    fetch_whole_tree(services, repository, git, goal.commit)
    load_facts(services.home, services.policies, repository.id, git, goal.commit)
    before, after = (
        [(one.folder, one.tree) for one in find_submodules(services, repository.id, git, objects.tree_of(git, commit))]
        for commit in (task.base_commit, goal.commit)
    )
    if before != after:
        changed = sorted({show_path(folder) for folder, _ in set(before) ^ set(after)})
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{goal.commit[:12]} has other submodules than {task.id} was made with",
            details=", ".join(changed)[:500],
            hint="Create a task there, and bring this one's changes along: `sandbox diff` shows them, "
            "`sandbox file patch` applies them.",
        )


def _require_mergeable(opened: TaskComparison, *, is_forward: bool) -> None:
    if opened.changes.tree and not is_forward:
        raise SandboxError(
            ErrorCode.DIRTY_WORKSPACE,
            f"{opened.task.id} has uncommitted changes, and this sync adds a merge commit",
            details=", ".join(change.path for change in opened.changes.shown[:10]),
            hint=f"Commit them, then repeat. `sandbox task checkout {opened.task.id} REF` moves a task without commits "
            "of its own, and takes its changes along.",
        )


def _require_published(git: Git, ref: str, goal: _Goal) -> None:
    """Another host takes no base of a task that the remote does not have (`delivery.hub.read_state`)."""
    if not is_published(git, goal.commit):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"On a cluster a task cannot start at '{ref[:100]}': no branch or tag has its commit {goal.commit[:12]}",
            details="Another host could not continue the task, and no controller would push it.",
            hint="Name a branch, a tag, or a commit of one. Use a task of this host's home for a pull request.",
            reason="not_on_cluster",
        )


def _require_no_own_commits(git: Git, task: Task, goal: _Goal) -> None:
    if task.head_commit == task.base_commit or objects.is_ancestor(git, task.head_commit, goal.commit):
        return
    raise SandboxError(
        ErrorCode.CONFLICT,
        f"{task.id} has commits of its own, which are not in {goal.commit[:12]}",
        hint=f"`sandbox task sync {task.id} --onto BRANCH` merges a branch into them; a new task starts without them.",
    )


def _keep_changes(services: Services, opened: TaskComparison) -> Snapshot | None:
    """A snapshot of the uncommitted changes; None without any: the commit itself is kept."""
    return keep_snapshot(services, opened, BEFORE_MOVE) if opened.changes.tree else None


def _apply_changes(git: Git, task: Task, ours: str, goal: _Goal) -> str:
    """The tree of the goal with the uncommitted changes. Raises: `conflict`."""
    merge = merge_trees(git, task.head_commit, ours, goal.commit)
    if not merge.conflicts:
        return merge.tree
    paths = [show_path(conflict.path) for conflict in merge.conflicts]
    raise SandboxError(
        ErrorCode.CONFLICT,
        f"The uncommitted changes do not apply to {goal.commit[:12]}",
        details=", ".join(paths[:20]),
        hint="The task was not changed. Commit the changes and use `sandbox task sync`, or `sandbox task restore TASK "
        "head` first: that keeps them as a snapshot.",
        reason="changes_do_not_apply",
        data={"paths": paths},
    )


def _index_resolutions(resolutions: Sequence[ConflictResolution]) -> dict[bytes, ConflictResolution]:
    """Raises: `invalid_input` for two answers to one path, or an answer that is not exactly one of side and content."""
    answers = {path_bytes(answer.path): answer for answer in resolutions}
    if len(answers) != len(resolutions) or any((a.take is None) == (a.content is None) for a in resolutions):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A resolution must be one for its path, and have either 'take' or 'content'",
            hint="take: 'ours' or 'theirs'. content: the whole merged file.",
        )
    return answers


def _resolve(
    services: Services, task: Task, git: Git, merge: TreeMerge, answers: Mapping[bytes, ConflictResolution]
) -> tuple[str, list[TreeConflict]]:
    """The merged tree, and the conflicts without an answer. Raises: `stale_hash`, `invalid_input`, `unsafe_path`."""
    conflicts = {conflict.path: conflict for conflict in merge.conflicts}
    chosen = []
    for path, answer in answers.items():
        _require_same_conflict(answer, conflicts.get(path))
        chosen.append((path, _choose(services, task, answer, conflicts[path], len(merge.tree))))
    left = [conflict for conflict in merge.conflicts if conflict.path not in answers or conflict.is_structural]
    if left or not merge.conflicts:
        return merge.tree, left
    return resolve_conflicts(git, merge, chosen), []


def _require_same_conflict(answer: ConflictResolution, conflict: TreeConflict | None) -> None:
    """Raises: `stale_hash`; `invalid_input` for a conflict that cannot be resolved here."""
    if conflict is None or (answer.ours, answer.theirs) != (_oid(conflict.ours), _oid(conflict.theirs)):
        now = "there is none" if conflict is None else f"ours {_oid(conflict.ours)}, theirs {_oid(conflict.theirs)}"
        raise SandboxError(
            ErrorCode.STALE_HASH,
            f"The resolution of {answer.path} is for another conflict",
            details=f"given: ours {answer.ours}, theirs {answer.theirs}; now: {now}",
            hint="Sync again without resolutions to see the conflicts of now.",
        )
    if conflict.is_structural:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{answer.path} is a file on one side and a directory on the other: neither side alone can be taken",
            hint="Rename or delete it in the task, then sync again.",
        )


def _oid(side: Side | None) -> str | None:
    return side.oid if side else None


def _choose(
    services: Services, task: Task, answer: ConflictResolution, conflict: TreeConflict, oid_length: int
) -> Side | Content | None:
    if answer.content is not None:
        parse_writable_path(answer.path, services.policies.paths, task.repo_id)
        return content_of(answer.content.encode(), oid_length)
    return conflict.ours if answer.take == "ours" else conflict.theirs


def _show_conflicts(git: Git, merge: TreeMerge, conflicts: Sequence[TreeConflict]) -> Iterator[MergeConflict]:
    for number, conflict in enumerate(conflicts):
        base, ours, theirs = (
            side and ConflictSide(mode=side.mode, blob=side.oid)
            for side in (conflict.base, conflict.ours, conflict.theirs)
        )
        shown = ours and theirs and number < MERGED_TEXTS
        merged, excerpt = read_conflict_text(git, merge, conflict) if shown else (None, None)
        yield MergeConflict(
            path=show_path(conflict.path),
            kind=_find_kind(conflict),
            base=base,
            ours=ours,
            theirs=theirs,
            merged=merged,
            excerpt=excerpt,
        )


def _find_kind(conflict: TreeConflict) -> ConflictKind:
    if conflict.is_structural:
        return ConflictKind.FILE_OR_DIRECTORY
    return _KINDS[conflict.base is not None, conflict.ours is not None, conflict.theirs is not None]


def _commit_merge(services: Services, task: Task, git: Git, tree: str, goal: _Goal) -> str:
    who, now = choose_identity(services.settings, services.git_operator), datetime.now(UTC)
    text = f"Merge {goal.base_branch} at {goal.commit[:12]}\n"
    message = add_commit_trailers(services.settings, text, task.id, who)
    return new_commits.commit_tree(git, tree, (task.head_commit, goal.commit), message, who.as_environment(now))


def _describe_move(task: Task, goal: _Goal, head: str) -> dict[str, object]:
    update: dict[str, object] = {
        "head_commit": head,
        "base_commit": goal.commit,
        "base_branch": goal.base_branch,
        "base_on_remote": goal.is_on_remote,
    }
    if head != goal.commit:
        update["committed_at"] = datetime.now(UTC)
        if task.status is TaskStatus.WORKING:
            update["status"] = TaskStatus.COMMITTED
    return update


def _open_source(services: Services, opened: TaskComparison, before: str, after: str) -> RestoreSource:
    """What `_move` takes files from. Fetches those of Git LFS, so the clone is not held: a repair would wait for the
    network. If another clone is put in its place meanwhile, the next `store_objects` refuses to go on; a repack deletes
    nothing that is as new as the merged tree.
    """
    return RestoreSource(opened.git, find_large_files(services, opened.task.repo_id, opened.git, (before, after)))


def _move(
    services: Services, opened: TaskComparison, source: RestoreSource, trees: tuple[str, str], moved: Task
) -> Task:
    """Change the files, then the branch, then the record. If the branch cannot be moved, the files are changed back.
    After a kill on the way `pending_moves` does it.

    Raises: as `restore_tree`, which leaves the files unchanged; `conflict` if the branch is elsewhere.
    """
    task, git = opened.task, opened.git
    before, after = trees
    with services.disk.admit(Writer.RESTORE, demand_of_difference(git, before, after, source.large)):
        require_writable_disk(services.home, task)
        begin_move(services, git, task, trees, moved)
        try:
            restore_tree(source, opened.files, before, after, opened.owner, opened.changes.rejected)
        except SandboxError:
            _finish_failed_move(services, task)
            raise
    try:
        refs.move_ref(git, f"refs/heads/{task.branch}", moved.head_commit, task.head_commit)
    except SandboxError:
        restore_tree(source, opened.files, after, before, opened.owner, opened.changes.rejected)
        _finish_failed_move(services, task)
        raise
    saved = save_task(services.home, moved)
    end_move(services, task)
    return saved


def _finish_failed_move(services: Services, task: Task) -> None:
    """The files are as before, but for those that could not be written: then the note stays for the next operation."""
    with suppress(SandboxError):
        finish_move(services, task.id)
