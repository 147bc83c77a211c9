"""The refs of a task in the cache clone: its branch, snapshots, and what is known of its pushes."""

from __future__ import annotations

from sandbox.git.objects import resolve_ref
from sandbox.git.process import Git
from sandbox.models import Task
from sandbox.workbench.tasks.only_copies import find_only_copies


def delete_refs(git: Git, task: Task) -> None:
    """Delete all refs of a task. The caller holds the task's lock and knows that no work is lost."""
    places = (f"refs/heads/{task.branch}", f"refs/sandbox/{task.id}/")
    for line in git.run("for-each-ref", "--format=%(objectname) %(refname)", *places).decode().splitlines():
        oid, _, name = line.partition(" ")
        git.run("update-ref", "--no-deref", "-d", name, oid)


def find_branch(git: Git, task: Task) -> str | None:
    """The task's local branch, if it exists."""
    return task.branch if resolve_ref(git, f"refs/heads/{task.branch}") else None


def delete_refs_without_work(git: Git, task: Task) -> None:
    """As `delete_refs`, unless a commit or a snapshot of the task exists only here."""
    if not any(copy.is_of(task.id) for copy in find_only_copies(git)):
        delete_refs(git, task)
