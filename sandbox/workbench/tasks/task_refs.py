"""The refs of a task in the cache clone: its branch, snapshots, and what is known of its pushes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git.process import Git, GitResult
from sandbox.git.refs import remove_abandoned_locks, resolve_ref, run_update_ref
from sandbox.models import Task
from sandbox.workbench.tasks.only_copies import WorkRef, find_among, list_work_refs


def list_refs(git: Git, task: Task) -> tuple[WorkRef, ...]:
    """All refs of a task: its branch, and those below `refs/sandbox/TASK`."""
    return _refs_of(task, list_work_refs(git))


def list_refs_without_work(git: Git, task: Task) -> tuple[WorkRef, ...]:
    """As `list_refs`; none if a commit or a snapshot of the task exists only here.

    The branch that it began at is listed, too: mostly it has the task's last commit, and no history has to be read.
    """
    branch, place = _name_refs(task)
    refs = list_work_refs(git, branch, place, f"refs/remotes/origin/{task.base_branch}")
    if any(copy.is_of(task.id) for copy in find_among(git, refs)):
        return ()
    return _refs_of(task, refs)


def _refs_of(task: Task, refs: Sequence[WorkRef]) -> tuple[WorkRef, ...]:
    branch, place = _name_refs(task)
    return tuple(ref for ref in refs if ref.name == branch or ref.name.startswith(place))


def _name_refs(task: Task) -> tuple[str, str]:
    """Its branch, and the folder of its other refs."""
    return f"refs/heads/{task.branch}", f"refs/sandbox/{task.id}/"


@contextmanager
def begin_deletion(git: Git, refs: Sequence[WorkRef]) -> Iterator[Callable[[], None]]:
    """As `delete_refs`, when the function that is yielded is called: git has started by then. Without the call
    every ref is kept. The caller calls it soon: git has reserved memory. Raises: as `Git.stream`; `quota_exceeded` if
    this process has too many open files.
    """
    if not refs:
        yield lambda: None
        return
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise translate_shortage(error) or SandboxError(
            ErrorCode.INTERNAL, "A pipe to git cannot be made", details=str(error)
        ) from error
    with (
        os.fdopen(writing, "wb") as pipe,
        os.fdopen(reading, "rb") as orders,
        git.stream("update-ref", "--stdin", stdin=orders) as process,
    ):
        orders.close()  # else we would wait for ourselves once git has ended

        def delete() -> None:
            remove_abandoned_locks(git.git_dir, [ref.name for ref in refs])
            with suppress(BrokenPipeError), pipe:  # git says why it has ended
                pipe.write(_write_orders(refs))
            process.finish()
            GitResult(process.code, b"", process.stderr).raise_for_status("update-ref")

        try:
            yield delete
        finally:
            pipe.close()


def delete_refs(git: Git, refs: Sequence[WorkRef]) -> None:
    """Delete these refs, all or none: none if one has moved since. The caller holds the task's lock and knows that no
    work is lost.
    """
    if refs:
        names = [ref.name for ref in refs]
        run_update_ref(git, names, "--stdin", stdin=_write_orders(refs)).raise_for_status("update-ref")


def _write_orders(refs: Sequence[WorkRef]) -> bytes:
    return "".join(f"option no-deref\ndelete {ref.name} {ref.oid}\n" for ref in refs).encode()


def find_branch(git: Git, task: Task) -> str | None:
    """The task's local branch, if it exists."""
    return task.branch if resolve_ref(git, f"refs/heads/{task.branch}") else None
