"""Which commits a push sends: the task's own, and those below its base that the remote does not have.

Theory. A task may start at a pull request, or at the commit of another task: then its base is on no branch of the
remote, and a push publishes all that leads to it. What the remote has is what its branches and tags had at the last
fetch. Branches of tasks do not count: no person has looked at what is only there, and it may be deleted by now. The
task's own branch counts, since the push goes there.
"""

from __future__ import annotations

import hashlib

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.log import (
    Published,
    list_messages,
    list_unpublished,
    list_unpublished_messages,
    list_unpublished_paths,
    published_except,
    read_messages,
    read_unpublished_messages,
)
from sandbox.git.process import Git
from sandbox.git.refs import resolve_ref
from sandbox.models import Task
from sandbox.workbench.tasks.branch_names import ALL_BRANCHES
from sandbox.workbench.tasks.snapshot_commits import find_kept_commits


def find_published(git: Git, task: Task) -> Published:
    """The commits that the remote has already, for a push of the task."""
    own = resolve_ref(git, f"refs/remotes/origin/{task.branch}")
    return published_except(ALL_BRANCHES, *([own] if own else []))


def find_below_base(git: Git, task: Task) -> str | None:
    """A digest of the ids of all commits that a push sends with the base; None if the remote has the base."""
    found = list_unpublished(git, task.base_commit, find_published(git, task))
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() if found else None


def read_sent_messages(git: Git, task: Task) -> str:
    """Authors, committers and messages of all commits that a push sends; untrusted text. Raises: `quota_exceeded`."""
    below = read_unpublished_messages(git, task.base_commit, find_published(git, task))
    return below + read_messages(git, task.base_commit, task.head_commit)


def list_sent_messages(git: Git, task: Task) -> tuple[tuple[str, str], ...]:
    """Id and message of each commit that a push sends, oldest first; untrusted text. Raises: `quota_exceeded`."""
    below = list_unpublished_messages(git, task.base_commit, find_published(git, task))
    return (*below, *list_messages(git, task.base_commit, task.head_commit))


def name_sent_commits(git: Git, task: Task) -> tuple[str, ...]:
    """Arguments of `git log` for the commits of `list_sent_messages`, and maybe some that the task's branch has."""
    if find_below_base(git, task) is None:
        return (f"{task.base_commit}..{task.head_commit}",)
    return task.head_commit, "--not", *published_except(ALL_BRANCHES)


def list_paths_below_base(git: Git, task: Task) -> frozenset[bytes]:
    """Every path that a commit below the base changes, of those that a push sends with it."""
    return list_unpublished_paths(git, task.base_commit, find_published(git, task))


def require_no_snapshot(git: Git, task: Task) -> None:
    """Raises: `policy_violation` if a push would send a snapshot: an earlier version may have begun the task there."""
    found = find_kept_commits(git, task.head_commit, "--not", *find_published(git, task))
    if found:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"{task.id} has the commit of a snapshot, or of rescued work, in its history: they are not pushed",
            details=", ".join(sorted(found)[:10]),
            hint=f"No data was sent. Start again, and bring the changes along: `sandbox diff {task.id}` shows them, "
            f"`sandbox task create {task.repo_id}` makes a task, and `sandbox file patch` applies them there.",
        )
