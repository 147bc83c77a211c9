"""A task's life: create, lock, compare, close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.git import objects, refs
from sandbox.git.contents import ContentSpool, spool_contents
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.git.scratch_trees import compute_tree_id
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Repository, Task, TaskOptions, TaskStatus, WorkspaceKind
from sandbox.store.records import find_task, require_task_record, save_new_task, save_task
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.disk_demands import demand_of_difference
from sandbox.workbench.controller.guest_accounts import Owner, release_user
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.approved_state import (
    PROFILE_CHOICE,
    SIBLINGS,
    Facts,
    describe_record,
    join_state,
    require_approved_state,
)
from sandbox.workbench.tasks.branch_names import ALL_BRANCHES, draw_task_id, name_branch, require_branch_words
from sandbox.workbench.tasks.guest_cleanup import remove_guest, remove_orphans
from sandbox.workbench.tasks.only_copies import WorkRef
from sandbox.workbench.tasks.task_refs import delete_refs, find_branch, list_refs_without_work
from sandbox.workbench.tasks.worktrees import (
    collect_unused_checkouts,
    create_worktree,
    delete_files,
    ensure_site_mounted,
    has_worktree,
    is_without_files,
    list_checks_at,
    locate_new_worktree,
    locate_worktree,
    lock_mount,
    make_durable,
    remove_worktree,
    unmount_worktree,
)
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.changes import Changes, require_no_unsaved_work
from sandbox.workspaces.comparison_limits import ComparisonLimits, compare_within_memory
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.layout import BaseTree, WorktreePaths
from sandbox.workspaces.layout_choice import layout_of
from sandbox.workspaces.restore import RestoreSource, restore_tree

if TYPE_CHECKING:
    from sandbox.git import cache_clones
    from sandbox.git import log as git_log
    from sandbox.workbench.repositories import clone, commit_facts, known_rules, repository_settings
    from sandbox.workbench.repositories import lfs as lfs_files
    from sandbox.workbench.tasks import (
        busy_task,
        killed_starts,
        pending_moves,
        snapshot_commits,
        spare_tasks,
        tree_tasks,
    )
else:  # loaded at first use (docs/adr/0080)
    lfs_files = LazyModule("sandbox.workbench.repositories.lfs")
    busy_task = LazyModule("sandbox.workbench.tasks.busy_task")
    killed_starts = LazyModule("sandbox.workbench.tasks.killed_starts")
    pending_moves = LazyModule("sandbox.workbench.tasks.pending_moves")
    snapshot_commits = LazyModule("sandbox.workbench.tasks.snapshot_commits")
    spare_tasks = LazyModule("sandbox.workbench.tasks.spare_tasks")
    tree_tasks = LazyModule("sandbox.workbench.tasks.tree_tasks")
    cache_clones = LazyModule("sandbox.git.cache_clones")
    git_log = LazyModule("sandbox.git.log")
    clone = LazyModule("sandbox.workbench.repositories.clone")
    commit_facts = LazyModule("sandbox.workbench.repositories.commit_facts")
    known_rules = LazyModule("sandbox.workbench.repositories.known_rules")
    repository_settings = LazyModule("sandbox.workbench.repositories.repository_settings")

_log = logging.getLogger(__name__)

EDIT_WAIT_S = 10.0
"""How long an edit waits for another operation on the same task. Checks run longer, so they cause a conflict."""

_QUIET_WAIT_S = 1.0  # after which it says what it waits for


@dataclass(frozen=True)
class TaskComparison:
    """A task with the values that its operations need. `changes`: differences from the task's head, whose contents can
    be read until the `with` block ends. `rules`: which new files they leave out. `uses_lfs`: .gitattributes of the base
    give files to Git LFS.
    """

    task: Task
    git: Git
    root: Path
    site: WorktreePaths
    files: WorktreeFiles
    spool: ContentSpool
    changes: Changes
    rules: IgnoreRules
    uses_lfs: bool = False

    @property
    def owner(self) -> Owner:
        """uid and gid of the task's files."""
        return self.site.owner


@dataclass(frozen=True)
class TaskBase:
    """git on the cache clone of a task, and its base commit with its facts. A sync or checkout changes them."""

    commit: str
    git: Git
    facts: BaseFacts


@dataclass(frozen=True)
class ForkOrigin:
    """The start of a fork: its branch starts at commit `head` of `task`, its files are those of `tree`. `base`: the
    task's base commit in that state. `new_id`: of the fork, drawn elsewhere; empty: it is drawn here.

    `git` reads the objects of the tree, which need not be in the cache clone.
    """

    task: Task
    head: str
    tree: str
    git: Git
    base: str
    new_id: str = ""


def create_task(
    services: Services,
    repo_id: str,
    prompt: str,
    base: str | None,
    origin: ForkOrigin | None = None,
    options: TaskOptions | None = None,
) -> Task:
    """A new task with its own branch and worktree. On failure both are removed.

    Raises: also `invalid_input` for a kind of workspace, or words of a branch, that a task cannot have.
    """
    options = options or TaskOptions()
    kind = require_task_kind(options.workspace_kind)
    services.disk.require(Writer.CHECKOUT, RECORD_DEMAND)
    repository, git = services.repositories.open(repo_id)
    if origin:
        commit, base_branch = origin.head, base or repository.default_branch
    else:
        commit, base_branch = find_start(services, repository, git, base or "HEAD")
    base_commit = origin.base if origin else commit
    if origin is None and kind is WorkspaceKind.WORKTREE and options.profile is None and services.settings.pool.size:
        wanted = spare_tasks.WantedTask(repo_id, prompt, base_branch, commit, options.branch)
        if adopted := spare_tasks.adopt_spare(services, git, wanted):
            return adopted
    base_tree = clone.fetch_whole_tree(services, repository, git, base_commit)  # its facts need sizes of all files
    task_id = (origin.new_id if origin else "") or draw_task_id(services.home, git)
    draft = draft_task(services, repo_id, task_id, prompt, (commit, base_branch), options)
    own: dict[str, object] = {
        "base_commit": base_commit,
        "base_on_remote": _is_base_on_remote(git, base or "HEAD", commit, origin),
        "forked_from": origin.task.id if origin else None,
    }
    return start_task(services, git, draft.model_copy(update=own), base_tree, origin)


def _is_base_on_remote(git: Git, base: str, commit: str, origin: ForkOrigin | None) -> bool:
    if origin is None:
        return is_on_remote(git, base, commit)
    if origin.base == origin.task.base_commit:
        return origin.task.base_on_remote
    return git_log.is_published_except(git, origin.base, ALL_BRANCHES)


def draft_task(
    services: Services,
    repo_id: str,
    task_id: str,
    prompt: str,
    start: tuple[str, str],
    options: TaskOptions | None = None,
) -> Task:
    """A new task, without files yet. `start`: its first commit, and the branch that a pull request of it would go to.

    Whether the remote has that commit (`base_on_remote`), the caller says. Raises: `invalid_input` for a kind of
    workspace, or words of a branch, that a task cannot have.
    """
    commit, base_branch = start
    options = options or TaskOptions()
    kind = require_task_kind(options.workspace_kind)
    return Task(
        id=task_id,
        repo_id=repo_id,
        prompt=prompt,
        base_branch=base_branch,
        branch=name_branch(task_id, prompt, options.branch),
        base_commit=commit,
        profile=options.profile,
        workspace_kind=kind,
        worktree_path=None if kind is WorkspaceKind.TREE else services.home.worktree(repo_id, task_id),
        status=TaskStatus.WORKING,
        head_commit=commit,
        created_at=datetime.now(UTC),
        session=services.caller.session,
    )


def start_task(services: Services, git: Git, task: Task, base_tree: str, origin: ForkOrigin | None) -> Task:
    """Make the branch and the files of a new task, and save its record. On failure all are removed.

    `base_tree`: of the task's base commit, whole. `origin`: whose files it begins with; None: those of the base.
    """
    create = _create_without_files if task.workspace_kind is WorkspaceKind.TREE else _create_worktree
    with services.home.locked(task.id):  # a task without a record that is not locked counts as left by a kill
        if services.home.creation_mark(task.id).exists():
            killed_starts.remove_killed_start(services, git, task)
        return create(services, git, task, base_tree, origin)


def require_possible_options(services: Services, options: TaskOptions) -> None:
    """Raises: `not_found` or `invalid_input` for the profile; `invalid_input` for the words of the branch."""
    if options.profile is not None:
        repository_settings.find_profile(services.policies.profiles, options.profile)
    if options.branch is not None:
        require_branch_words(options.branch)


TASK_KINDS = (WorkspaceKind.WORKTREE, WorkspaceKind.TREE)


def require_task_kind(name: str) -> WorkspaceKind:
    """Raises: `invalid_input` for a kind of workspace that a task cannot have."""
    for kind in TASK_KINDS:
        if kind == name:
            return kind
    raise SandboxError(
        ErrorCode.INVALID_INPUT,
        f"A task cannot be of the kind {name[:100]!r}",
        details=f"Known kinds of tasks: {', '.join(TASK_KINDS)}",
        hint="Programs get workspaces of the other kinds with `Workbench.acquire_workspace` (docs/workspaces.md).",
    )


def _create_without_files(services: Services, git: Git, task: Task, _base_tree: str, origin: ForkOrigin | None) -> Task:
    """The branch and record of a task of kind `tree`; the tree of `origin` is in the cache clone."""
    mark = services.home.creation_mark(task.id)
    try:
        mark.touch(mode=0o600)
        with _new_branch(git, task):
            if origin:
                tree_tasks.keep_working_tree(services, git, task, origin.tree)
            saved = save_new_task(services.home, task)
    except BaseException:
        if origin:
            tree_tasks.forget_working_tree(git, task)
        mark.unlink(missing_ok=True)
        raise
    mark.unlink()
    return saved


@contextmanager
def _new_branch(git: Git, task: Task) -> Iterator[None]:
    """Make the branch of a task; delete it if the block fails. Raises: as `move_ref`, also for one that is there."""
    branch = f"refs/heads/{task.branch}"
    with store_objects(git):  # the commit may be one that no ref leads to
        refs.move_ref(git, branch, task.head_commit, None)
    try:
        yield
    except BaseException:
        refs.drop_ref(git, branch, task.head_commit)  # the clone may have been removed
        raise


def find_start(services: Services, repository: Repository, git: Git, base: str) -> tuple[str, str]:
    """The commit of a branch, tag, commit id, pull request or `HEAD`, and the branch that a pull request of a task that
    starts there would go to. A pull request is fetched. Raises: as `resolve_commit`; also `invalid_input` for a
    snapshot; network errors.
    """
    if wanted := clone.find_pull_request_ref(git, base):
        return clone.fetch_request(services, repository, git, wanted), repository.default_branch
    branch = repository.default_branch if base == "HEAD" else base
    commit = cache_clones.resolve_commit(git, branch, repository.default_branch)
    if not _is_name_on_remote(git, branch):
        snapshot_commits.require_possible_start(git, base, commit)
    return commit, branch


def is_on_remote(git: Git, base: str, commit: str) -> bool:
    """Whether a start that `base` names is a commit of a branch or tag of the remote. No for a pull request, and for
    the branch of a task: their commits are on no other branch yet, so those of a task that starts there publish them.
    """
    if base == "HEAD":
        return True
    if base.startswith(ALL_BRANCHES.rstrip("*")) or clone.find_pull_request_ref(git, base):
        return False
    return _is_name_on_remote(git, base) or git_log.is_published_except(git, commit, ALL_BRANCHES)


def _is_name_on_remote(git: Git, name: str) -> bool:
    """Whether a branch or tag of the remote has this name."""
    return any(refs.resolve_ref(git, f"{place}{name}") for place in ("refs/remotes/origin/", "refs/tags/"))


def _create_worktree(services: Services, git: Git, task: Task, base_tree: str, origin: ForkOrigin | None) -> Task:
    checks = list_checks_at(services, git, task.repo_id, task.base_commit, task.profile)
    site = locate_new_worktree(services, task.repo_id, task.id, checks)
    mark = services.home.creation_mark(task.id)
    try:
        mark.touch(mode=0o600)  # if we are killed: the task was not reported to a caller, and holds no work to rescue
        with _new_branch(git, task):
            create_worktree(services, task.repo_id, git, base_tree, site)
            if origin:
                trees = (base_tree, origin.tree)
                large = lfs_files.find_large_files(services, task.repo_id, origin.git, trees)
                source = RestoreSource(origin.git, large)
                demand = demand_of_difference(origin.git, *trees, source.large)
                with services.disk.admit(Writer.CHECKOUT, demand), WorktreeFiles(site.root) as files:
                    restore_tree(source, files, *trees, site.owner)
            make_durable(site)
            saved = save_new_task(services.home, task)
    except BaseException:
        remove_worktree(services, site)
        mark.unlink(missing_ok=True)
        raise
    mark.unlink()
    return saved


def read_base(services: Services, task: Task) -> TaskBase:
    """For an operation that compares a task several times. Raises: `not_found`, `quota_exceeded`."""
    _, git = services.repositories.open(task.repo_id)
    facts = commit_facts.load_facts(services.home, services.policies, task.repo_id, git, task.base_commit)
    return TaskBase(task.base_commit, git, facts)


@contextmanager
def lock_task(
    services: Services,
    task: str | Task,
    wait_s: float = EDIT_WAIT_S,
    waiting: Callable[[str], None] | None = None,
    *,
    discards: bool = False,
) -> Iterator[Task]:
    """Lock the task: no check runs in it, and no other edit. Raises: `conflict` when one does after `wait_s`; as
    `finish_move` after a sync that was killed.

    `task`: its id, or its record if the caller has read it. The yielded record is read under the lock. `waiting`: as
    `busy_task.wait_for_lock`. `discards`: the caller throws the files away, then calls `end_move`: no error of
    `finish_move` stops it.
    """
    task_id = task.id if isinstance(task, Task) else task
    require_task_record(services.home, task_id)
    with _hold(services, task_id, wait_s, waiting):
        remove_orphans(services, task_id)
        if services.home.move_note(task_id).exists():
            finish = pending_moves.try_to_finish_move if discards else pending_moves.finish_move
            finish(services, task_id)
        yield find_task(services.home, task_id)


@contextmanager
def _hold(
    services: Services, task_id: str, wait_s: float, waiting: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a task. Raises: as `busy_task.wait_for_lock`."""
    quiet_s = min(wait_s, _QUIET_WAIT_S)
    with ExitStack() as held:
        try:
            held.enter_context(services.home.locked(task_id, quiet_s))
        except SandboxError:
            held.enter_context(busy_task.wait_for_lock(services, task_id, wait_s - quiet_s, waiting))
        yield


@contextmanager
def compare_task(
    services: Services,
    task: Task,
    without: Sequence[str] = (),
    task_base: TaskBase | None = None,
    *,
    reads_all: bool = False,
) -> Iterator[TaskComparison]:
    """Compare the task's files with its head; safe while a check runs in the task.

    `without`: paths of new files or directories to ignore. `task_base`: of this task, if the caller has read it.
    `reads_all`: trust no stamp, as before files are deleted (`WorktreePaths.without_stat_cache`).
    Raises: `conflict` if the task was moved since then.
    """
    git, base = _open_base(services, task, without, task_base)
    moved = task.head_commit != task.base_commit
    head_tree = objects.tree_of(git, task.head_commit) if moved else base.facts.tree
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if is_without_files(task, site):
        with WorktreeFiles(services.home.no_files) as files, spool_contents(git) as spool:
            changes = tree_tasks.find_tree_changes(git, task)
            yield TaskComparison(task, git, site.root, site, files, spool, changes, base.rules, base.facts.lfs)
        return
    root = ensure_site_mounted(services.home, task, site)
    compared = site.without_stat_cache() if reads_all else site
    with WorktreeFiles(root) as files, spool_contents(git) as spool:

        def find(limits: ComparisonLimits) -> Changes:
            return layout_of(site).find_changes(git, compared, base, head_tree, spool, limits)

        with compare_within_memory(spool, find) as changes:
            yield TaskComparison(task, git, root, site, files, spool, changes, base.rules, base.facts.lfs)


def _open_base(services: Services, task: Task, without: Sequence[str], known: TaskBase | None) -> tuple[Git, BaseTree]:
    home, policies = services.home, services.policies
    if known is None:
        _, git = services.repositories.open(task.repo_id)
        return git, known_rules.load_task_base(home, policies, task, git, without)
    if known.commit != task.base_commit:
        raise SandboxError(
            ErrorCode.CONFLICT, f"{task.id} was moved to another base meanwhile", hint="Repeat the operation."
        )
    return known.git, known_rules.rules_of_facts(home, policies, task, known.facts, without)


def find_working_state(services: Services, opened: TaskComparison, profile_choice: str = "", siblings: str = "") -> str:
    """What a person approves about the working state of a task: its tree, and what the question shows of its record.
    `siblings`: a digest of the working states of other tasks that the call reads.
    """
    found = {PROFILE_CHOICE: profile_choice, SIBLINGS: siblings}
    more = {name: value for name, value in found.items() if value}
    return join_state(find_opened_tree(opened), describe_record(services.home, opened.task, **more))


def require_approved_tree(services: Services, opened: TaskComparison, approved: str | None) -> None:
    """`approved`: the working state that a person approved, or the id of its tree; None: any. Raises: `conflict`."""
    if approved is None:
        return

    def find_facts(asked: Facts) -> Facts:
        known = {name: asked[name] for name in asked if name == PROFILE_CHOICE}  # of profiles, not of the task
        return {**describe_record(services.home, opened.task), **known}

    require_approved_state("tree", find_opened_tree(opened), approved, find_facts)


def require_approved_task(services: Services, task: Task, approved: str | None) -> None:
    """As `require_approved_tree`, for an operation that does not read the working state itself."""
    if approved is not None:
        with compare_task(services, task) as opened:
            require_approved_tree(services, opened, approved)


def find_working_tree(services: Services, task_id: str) -> str:
    """The id of a task's working state; it is not stored. Raises: `not_found`; `conflict` for a closed task."""
    with compare_task(services, find_task(services.home, task_id)) as opened:
        return find_opened_tree(opened)


def find_opened_tree(opened: TaskComparison) -> str:
    """The id of the working state in `opened`; it is not stored."""
    return compute_tree_id(opened.git, opened.task.head_commit, opened.changes.tree)


_DISCARD_HINT = "Repeat with --discard to delete all of it."


def close_task(
    services: Services,
    task_id: str,
    *,
    delete: bool,
    discard: bool,
    expected_tree: str | None = None,
    discard_hint: str = _DISCARD_HINT,
) -> Task:
    """End a task; `delete` removes its worktree if it is clean, or with `discard`, and its local branch and refs unless
    commits or snapshots exist only there. Keeps the remote branch and PR.

    `expected_tree`: the working state that was approved. `discard_hint`: how the caller discards, for the error.
    Raises: `conflict` for another state; `dirty_workspace`.
    """
    task = find_task(services.home, task_id, allow_closed=True)
    with _hold(services, task_id, EDIT_WAIT_S):
        remove_orphans(services, task_id)
        if services.home.move_note(task_id).exists() and not (delete and discard):
            pending_moves.try_to_finish_move(services, task_id)  # what it leaves are changes, as all others
        services.home.spare_mark(task_id).unlink(missing_ok=True)
        task = find_task(services.home, task_id, allow_closed=True)
        site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
        require_approved_task(services, task, expected_tree)
        without_files = is_without_files(task, site)
        require_closable(services, task, delete=delete, discard=discard, discard_hint=discard_hint)
        if delete and without_files:
            tree_tasks.forget_working_tree(services.repositories.open(task.repo_id)[1], task)
        deletes_files = delete and has_worktree(site)
        with ThreadPoolExecutor(2, "close") as pool, lock_mount(services.home, task.id):
            # The mount stays locked until the record says closed, or a reader would mount it again. No check runs, so
            # the files may go while the engine removes the idle container.
            guest = pool.submit(remove_guest, services, task_id)
            refs = pool.submit(_list_refs_without_work, services, task) if delete else None
            if deletes_files:
                delete_files(site)
            else:
                unmount_worktree(site)
            guest.result()
            if deletes_files:
                release_user(services, site.owner)
            closed = {"status": TaskStatus.CLOSED, "closed_at": task.closed_at or datetime.now(UTC)}
            if not has_worktree(site):
                closed["worktree_path"] = None
            saved = save_task(services.home, task.model_copy(update=closed))
        services.home.unused_move_note(task_id).unlink(missing_ok=True)
        if refs is not None:
            _delete_refs(services, saved, refs.result())  # all or none, so before that of a move
        if services.home.move_note(task_id).exists():
            pending_moves.end_move(services, saved)
    if delete:
        collect_unused_checkouts(services.home, services.settings, task.repo_id)
    return saved


def is_deleted(services: Services, task: Task) -> bool:
    """Whether the task is closed and has no worktree any more. One of kind `tree` may have changes without one."""
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    return task.status is TaskStatus.CLOSED and not has_worktree(site) and not is_without_files(task, site)


def require_closable(
    services: Services, task: Task, *, delete: bool, discard: bool, discard_hint: str = _DISCARD_HINT
) -> None:
    """Raises: `dirty_workspace` if uncommitted changes, or names that no commit can hold, would be deleted without
    `discard`.
    """
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if delete and not discard and (has_worktree(site) or is_without_files(task, site)):
        _require_no_changes(services, task, discard_hint)


def find_local_branch(services: Services, task: Task) -> str | None:
    """The task's branch in the cache clone; None if it was deleted, or the clone cannot be read."""
    try:
        return find_branch(services.repositories.open(task.repo_id)[1], task)
    except SandboxError:
        return None


def _list_refs_without_work(services: Services, task: Task) -> tuple[WorkRef, ...]:
    """The refs of a task; none if work exists only there, or the clone cannot be read: `gc` looks at them again."""
    try:
        return list_refs_without_work(services.repositories.open(task.repo_id)[1], task)
    except SandboxError as error:
        _log.info("the refs of %s were kept: %s", task.id, error.brief)
        return ()


def _delete_refs(services: Services, task: Task, refs: Sequence[WorkRef]) -> None:
    """Delete the refs of a closed task. It is closed in any case: `gc` looks at them again."""
    try:
        if refs:
            delete_refs(services.repositories.open(task.repo_id)[1], refs)
    except SandboxError as error:
        _log.info("the refs of %s were kept: %s", task.id, error.brief)


_CLOSED_HINT = (
    "A closed task takes no commit. `sandbox diff {}` prints the changes as a patch, for a new task or another "
    "checkout."
)


def _require_no_changes(services: Services, task: Task, discard_hint: str) -> None:
    is_closed = task.status is TaskStatus.CLOSED
    with compare_task(services, task, reads_all=True) as opened:
        require_no_unsaved_work(
            task.id,
            opened.changes,
            save_hint=_CLOSED_HINT.format(task.id) if is_closed else "Commit them.",
            delete_hint=discard_hint,
        )
