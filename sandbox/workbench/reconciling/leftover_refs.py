"""Branches of tasks without a record, commits that were never recorded, and clones without a repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.git import objects, refs
from sandbox.git.cache_clones import open_cache, read_last_fetch_time
from sandbox.git.maintenance import request_repack
from sandbox.git.process import Git
from sandbox.git.pull_request_refs import REQUEST_REFS
from sandbox.models import LeftoverAction, Task, TaskStatus
from sandbox.store.home import Home
from sandbox.store.records import find_task, list_repositories, list_tasks, not_found_error
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, is_task_id, list_folder
from sandbox.workbench.tasks.branch_names import PREFIX, find_ids, index_ids, read_owner, select_ids
from sandbox.workbench.tasks.pending_moves import drop_kept_files
from sandbox.workbench.tasks.worktrees import has_worktree, locate_worktree

if TYPE_CHECKING:
    from sandbox.config import Settings

_KEPT_REFS = "refs/sandbox/"
_NO_STATES = ("/pushed", "/pushing", "/moving")
_STILL_CLONING_S = 3600.0
_FORMAT = "%(objectname) %(refname)"


def find_refs(reconciler: Reconciler) -> Iterator[Finding]:
    """Refs of tasks in the cache clones that differ from the task records, and clones without a repository."""
    services = reconciler.services
    registered = list_repositories(services.home)
    yield from _find_unregistered(reconciler, {repository.id for repository in registered})
    for repository in registered:
        try:
            git = open_cache(services.home.clone(repository.id), services.settings.git.executable)
            listed = git.run("for-each-ref", f"--format={_FORMAT}", PREFIX, _KEPT_REFS).decode().splitlines()
        except SandboxError as error:
            yield Finding("clone", repository.id, note=f"{error.brief}: {error.details}"[:500])
            continue
        tips = {name: oid for oid, _, name in (line.partition(" ") for line in listed)}
        yield from _find_orphans(services.home, services.policies, repository.id, git, tips)
        yield from _find_unfinished_commits(services.home, repository.id, git, tips)
        yield from _find_ended_moves(services.home, git, tips)


def _find_unregistered(reconciler: Reconciler, registered: set[str]) -> Iterator[Finding]:
    """Clones that are not registered. One with refs of tasks is only reported: the registry may be damaged. Another one
    is what a clone that failed has left; in its first hour it may be one that goes on.
    """
    services = reconciler.services
    for path in list_folder(services.home.clone("any").parent):
        if path.name in registered or path.name.startswith("."):
            continue
        if _is_old(path) and _has_no_work(services, path):
            remedy = partial(_remove_unregistered, services, path)
            yield Finding("clone", path.name, remedy, locks=(f"repository-{path.name}",), note="never registered")
        else:
            note = f"no repository is registered for it; `sandbox repo remove {path.name}` deletes it"
            yield Finding("clone", path.name, note=note)


def _is_old(clone: Path) -> bool:
    began = read_last_fetch_time(clone)
    return began is not None and time.time() - began > _STILL_CLONING_S


def _has_no_work(services: Services, clone: Path) -> bool:
    """Whether a clone has no ref of a task, and no worktree is based on it. False if that is unknown."""
    if list_folder(services.home.repositories / "worktrees" / clone.name):
        return False
    git = Git(clone, services.settings.git.executable)
    listed = git.attempt("for-each-ref", "--count=1", PREFIX, _KEPT_REFS)
    return listed.code == 0 and not listed.stdout.strip()


def _remove_unregistered(services: Services, clone: Path) -> str | None:
    """Under the lock of the repository."""
    if clone.name in {repository.id for repository in list_repositories(services.home)}:
        return None
    if not (_is_old(clone) and _has_no_work(services, clone)):
        return None
    remove_tree(clone)
    return ""


def _find_orphans(home: Home, policies: Policies, repo_id: str, git: Git, tips: dict[str, str]) -> Iterator[Finding]:
    ids = index_ids(home, repo_id)  # once: looked for by each branch, a home of 5,000 tasks took minutes
    drop = partial(_drop, home, policies, git)
    for name, oid in tips.items():
        if name.startswith(PREFIX):
            yield from _judge_branch(home, repo_id, ids, (name, oid), drop)
        elif (task_id := _task_of(name)) is None or home.task(task_id).exists():
            continue
        elif not name.endswith(_NO_STATES):
            yield _report_kept_ref(name)


def _judge_branch(
    home: Home,
    repo_id: str,
    known: Mapping[str, set[str]],
    branch: tuple[str, str],
    drop: Callable[[tuple[str, str], tuple[str, str]], str | None],
) -> Iterator[Finding]:
    """A branch of a task without a record. A short name is left alone unless it can belong to one task only.

    `known`: see `index_ids`. `drop`: deletes it, once it was judged again.
    """
    owner = read_owner(branch[0])
    if owner is None:
        return
    ids = select_ids(known, owner) or ({owner} if is_task_id(owner) else set())
    if len(ids) > 1 or any(home.task(task_id).exists() for task_id in ids):
        return
    task_id = next(iter(ids), None)
    locks = (task_id,) if task_id else ()
    remedy = partial(drop, (repo_id, owner), branch)
    yield Finding("branch", branch[0], remedy, locks=locks, note="it has no task and no commits of its own")


def _report_kept_ref(name: str) -> Finding:
    note = f"its task has no record; `sandbox gc --forget {name}` deletes it permanently"
    return Finding(_kind(name), name, note=note)


def _kind(name: str) -> str:
    return "rescued work" if name.split("/")[3].startswith("rescued-") else "snapshot"


def find_forgettable(home: Home, settings: Settings, names: Sequence[str]) -> list[Finding]:
    """Findings that delete these kept states of closed tasks and of tasks without a record. They may be the only copy
    of work. `names`: refs, or ids of tasks for all that are kept of them.

    Raises: `not_found` when a name is neither.
    """
    known = {finding.name: finding for finding in _list_forgettable(home, settings)}
    chosen: dict[str, Finding] = {}
    for name in names:
        found = {ref: finding for ref, finding in known.items() if name in {ref, _task_of(ref)}}
        if not found:
            hint = "`sandbox gc --dry-run` lists those without a task, `sandbox task snapshots` those of a closed one."
            raise not_found_error("kept state of a closed task", name, known, hint)
        chosen |= found
    return list(chosen.values())


def _list_forgettable(home: Home, settings: Settings) -> Iterator[Finding]:
    for repository in list_repositories(home):
        git = open_cache(home.clone(repository.id), settings.git.executable)
        for line in git.run("for-each-ref", f"--format={_FORMAT}", _KEPT_REFS).decode().splitlines():
            oid, _, name = line.partition(" ")
            task_id = _task_of(name)
            if task_id is not None and not name.endswith(_NO_STATES) and _is_over(home, task_id):
                yield Finding(_kind(name), name, partial(_forget, git, name, oid), locks=(task_id,))


def _is_over(home: Home, task_id: str) -> bool:
    """Whether a task is closed, or has no record. No for a record that cannot be read."""
    if not home.task(task_id).exists():
        return True
    with suppress(SandboxError):
        return find_task(home, task_id, allow_closed=True).status is TaskStatus.CLOSED
    return False


def _forget(git: Git, name: str, oid: str) -> str | None:
    """None if it is gone: `latest` goes with the snapshot that it leads to, which would stay on it."""
    if refs.resolve_ref(git, name) is None:
        return None
    request_repack(git.git_dir)
    refs.delete_ref(git, name, oid)
    latest = f"{_KEPT_REFS}{_task_of(name)}/latest"
    if refs.resolve_ref(git, latest) == oid:
        refs.delete_ref(git, latest, oid)
    return f"it was commit {oid}; `gc` frees its space a day later"


def _task_of(ref: str) -> str | None:
    words = ref.split("/")
    return words[2] if is_task_id(words[2]) else None


def _drop(home: Home, policies: Policies, git: Git, owner: tuple[str, str], branch: tuple[str, str]) -> str | None:
    """Delete a branch if each of its commits is also reachable from another ref. Raises: `dirty_workspace` if not."""
    repo_id, beginning = owner
    name, oid = branch
    ids = find_ids(home, repo_id, beginning)
    if any(home.task(task_id).exists() for task_id in ids):
        return None
    if any(has_worktree(locate_worktree(home, policies, repo_id, task_id)) for task_id in ids):
        raise _branch_kept("its worktree still exists")
    elsewhere = ("--not", "--remotes", "--tags", f"--exclude={name.removeprefix('refs/heads/')}", "--branches")
    if git.run("rev-list", "--max-count=1", oid, *elsewhere).strip():
        raise _branch_kept("its commits are on no other ref")
    refs.delete_ref(git, name, oid)
    return ""


def _branch_kept(why: str) -> SandboxError:
    return SandboxError(ErrorCode.DIRTY_WORKSPACE, "The branch was kept", details=why)


def _find_unfinished_commits(home: Home, repo_id: str, git: Git, tips: dict[str, str]) -> Iterator[Finding]:
    """Branches one commit ahead of their task's record: the controller was killed before it wrote the record."""
    for task in list_tasks(home, repo_id):
        name = f"refs/heads/{task.branch}"
        tip = tips.get(name)
        if task.status is not TaskStatus.CLOSED and tip not in {None, task.head_commit}:
            back = partial(_move_branch_back, home, git, task)
            yield Finding("commit", task.id, back, LeftoverAction.RESTORED, (task.id,))


def _find_ended_moves(home: Home, git: Git, tips: Iterable[str]) -> Iterator[Finding]:
    """Files that are kept for a sync or checkout, whose note is gone (`tasks.pending_moves`)."""
    for name in tips:
        if name.startswith(_KEPT_REFS) and name.endswith("/moving"):
            task_id = _task_of(name)
            if task_id is not None and not home.move_note(task_id).exists():
                remedy = partial(_drop_kept_files, home, git, task_id)
                yield Finding("move", task_id, remedy, locks=(task_id,), note="it is over")


def _drop_kept_files(home: Home, git: Git, task_id: str) -> str | None:
    if home.move_note(task_id).exists():
        return None
    drop_kept_files(git, task_id)
    return ""


def _is_of_remote(git: Git, commit: str) -> bool:
    """Whether the remote has this commit, as of the last fetch: on a branch, a tag or in a pull request."""
    known = ("--not", "--remotes", "--tags", f"--glob={REQUEST_REFS}")
    return not git.run("rev-list", "--max-count=1", commit, *known).strip()


def _move_branch_back(home: Home, git: Git, before: Task) -> str | None:
    """Move the branch back to the commit in the task's record. The files still have the changes. After a sync without
    own commits, or a checkout, the branch is at a commit of the remote.
    """
    task = find_task(home, before.id, allow_closed=True)
    name = f"refs/heads/{task.branch}"
    tip = refs.resolve_ref(git, name)
    if tip is None or tip == task.head_commit or task.status is TaskStatus.CLOSED:
        return None
    if objects.parent_of(git, tip) != task.head_commit and not _is_of_remote(git, tip):
        raise _branch_kept(f"the branch is at {tip[:12]}, its task at {task.head_commit[:12]}")
    refs.move_ref(git, name, task.head_commit, tip)
    return f"its branch was moved back to {task.head_commit[:12]}; {tip[:12]} was never recorded"
