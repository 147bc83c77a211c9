"""The refs of a task in the cache clone: its branch, snapshots, and what is known of its pushes."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git.process import Git
from sandbox.git.refs import resolve_ref, run_update_ref
from sandbox.models import Task
from sandbox.workbench.tasks.only_copies import WorkRef, find_among, list_request_heads, list_work_refs


def list_refs(git: Git, task: Task) -> tuple[WorkRef, ...]:
    """All refs of a task: its branch, and those below `refs/sandbox/TASK`."""
    return _refs_of(task, list_work_refs(git))


def list_refs_without_work(git: Git, task: Task) -> tuple[WorkRef, ...]:
    """As `list_refs`; none if a commit or a snapshot of the task exists only here.

    The branch that it began at is listed, too: mostly it has the task's last commit, and no history has to be read.
    """
    branch, place = _name_refs(task)
    tracked = (f"refs/remotes/origin/{name}" for name in (task.base_branch, task.branch))
    refs = list_work_refs(git, branch, place, *tracked)
    if any(copy.is_of(task.id) for copy in find_among(git, refs, list_request_heads([task]))):
        return ()
    return _refs_of(task, refs)


def _refs_of(task: Task, refs: Sequence[WorkRef]) -> tuple[WorkRef, ...]:
    branch, place = _name_refs(task)
    return tuple(ref for ref in refs if ref.name == branch or ref.name.startswith(place))


def _name_refs(task: Task) -> tuple[str, str]:
    """Its branch, and the folder of its other refs."""
    return f"refs/heads/{task.branch}", f"refs/sandbox/{task.id}/"


def delete_refs(git: Git, refs: Sequence[WorkRef]) -> None:
    """Delete these refs, all or none: none if one has moved since. The caller holds the task's lock and knows that no
    work is lost.
    """
    if refs:
        names = [ref.name for ref in refs]
        orders = "".join(f"option no-deref\ndelete {ref.name} {ref.oid}\n" for ref in refs)
        run_update_ref(git, names, "--stdin", stdin=orders.encode()).raise_for_status("update-ref")


def find_branch(git: Git, task: Task) -> str | None:
    """The task's local branch, if it exists."""
    return task.branch if resolve_ref(git, f"refs/heads/{task.branch}") else None
