"""The commit that holds the state of a task in a hub: the task's files on its head, and two documents in its message.

Theory. The message has a subject, then a line with the operation that made the state, then, after an empty line, the
task's record. The host that continues the task may be asked for that operation again, because the answer was lost with
the host before it. A version that does not know of the line reads the record alone.

Everything here was written by another host, which ran untrusted code: each field that leads somewhere is checked.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects, refs
from sandbox.git.log import is_published, read_message
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.models import Task, TaskStatus
from sandbox.models.ids import MAX_BRANCH_CHARS
from sandbox.models.operations import DoneOperation
from sandbox.workbench.controller.commit_identity import SANDBOX_IDENTITY
from sandbox.workbench.tasks.branch_names import is_branch_of
from sandbox.workbench.tasks.lifecycle import TASK_KINDS

_SUBJECT = "State of a task"
_DONE = "Operation: "


def commit_state(git: Git, task: Task, tree: str, done: DoneOperation | None) -> str:
    """Write a state. `tree`: the task's files. `done`: the operation that made it, if that is to be recorded."""
    record = task.model_copy(update={"worktree_path": None}).model_dump_json()
    line = f"\n{_DONE}{done.model_dump_json()}" if done else ""
    now = SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
    return new_commits.commit_tree(git, tree, task.head_commit, f"{_SUBJECT}{line}\n\n{record}\n", now)


def commit_claim(git: Git, state: str) -> str:
    """The state again, as a commit of its own: a push of what the hub has already succeeds without a look at its lease,
    so of two hosts with one and the same commit both would believe that the task is theirs.
    """
    done, record = _read_parts(git, state)
    line = f"\n{_DONE}{done}" if done else ""
    message = f"{_SUBJECT}, claimed {uuid.uuid4().hex}{line}\n\n{record}"
    now = SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
    parent = objects.parent_of(git, state)
    with store_objects(git):
        return new_commits.commit_tree(git, objects.tree_of(git, state), [parent] if parent else [], message, now)


def commit_end(git: Git, done: DoneOperation) -> str:
    """Write how a task was closed: no files, and the operation that did it."""
    now = SANDBOX_IDENTITY.as_environment(datetime.now(UTC))
    message = f"End of a task\n{_DONE}{done.model_dump_json()}\n"
    tree = git.run("mktree", stdin=b"").decode().strip()
    return new_commits.commit_tree(git, tree, [], message, now)


def read_end(git: Git, commit: str, task_id: str) -> tuple[DoneOperation, Task]:
    """The operation that closed a task, and the record that it answered. Raises: `unsafe_repository`."""
    done = _parse_done(_read_parts(git, commit)[0])
    try:
        task = Task.model_validate(done.value if done else None)
    except ValidationError as error:
        raise damaged_error(task_id, "it does not say how the task was closed") from error
    if done is None or task.id != task_id or task.status is not TaskStatus.CLOSED:
        raise damaged_error(task_id, "it is of another task, or of one that is open")
    return done, task


def require_state_commit(git: Git, local: str, task_id: str) -> str:
    """The commit of a fetched state. `local`: the ref that it was fetched to. Raises: `unsafe_repository`."""
    state = refs.resolve_ref(git, local)
    if state is None or objects.peel(git, state, "commit") != state:
        raise damaged_error(task_id, "it is no commit")
    return state


class HubState(NamedTuple):
    """What a state says. `done`: the operation that made it; None if it names none that this version understands."""

    task: Task
    done: DoneOperation | None


def read_state(git: Git, commit: str, task_id: str, repo_id: str) -> HubState:
    """The message of a state. It comes from another host: each field of the record that leads somewhere is checked.

    Raises: `unsafe_repository`.
    """
    done, record = _read_parts(git, commit)
    try:
        task = Task.model_validate_json(record)
    except ValidationError as error:
        raise damaged_error(task_id, "it has no record of a task") from error
    if task.id != task_id or task.repo_id != repo_id or not is_branch_of(task_id, task.branch):
        raise damaged_error(task_id, "its record is of another task")
    if any(len(name) > MAX_BRANCH_CHARS for name in (task.branch, task.base_branch, task.profile or "", task.session)):
        raise damaged_error(task_id, "its names are too long")
    if task.workspace_kind not in TASK_KINDS:
        raise damaged_error(task_id, "its files are of another kind")
    if not is_published(git, task.base_commit) or not objects.is_ancestor(git, task.base_commit, task.head_commit):
        # The base says which checks there are (`load_task_profile`), so the gate would be the hub's.
        raise damaged_error(task_id, "its base is not in a branch or tag of the repository, or not below its head")
    if objects.parent_of(git, commit) != task.head_commit:
        raise damaged_error(task_id, "it is not on the task's head")
    return HubState(task, _parse_done(done))


def _read_parts(git: Git, commit: str) -> tuple[str, str]:
    """The operation and the record in the message of a state, as JSON; the first is empty if it names none."""
    head, _, record = read_message(git, commit).partition("\n\n")
    done = next((line.removeprefix(_DONE) for line in head.split("\n") if line.startswith(_DONE)), "")
    return done, record


def _parse_done(document: str) -> DoneOperation | None:
    try:
        return DoneOperation.model_validate_json(document)
    except ValidationError:
        return None


def without_claims(task: Task, session: str) -> Task:
    """A record without what only this host may say: who owns the task here, and what a forge or remote was given."""
    status = task.status if task.status is TaskStatus.WORKING else TaskStatus.COMMITTED
    claims = ("pr_url", "pr_base", "pr_head", "pushed_at", "closed_at", "forked_from")
    return task.model_copy(update={"status": status, "session": session, **dict.fromkeys(claims)})


def damaged_error(task_id: str, why: str) -> SandboxError:
    """A state in the hub is not used."""
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY,
        f"The hub's state of {task_id} cannot be used: {why}",
        hint="Something other than a worker has written to refs/space-sandbox of the hub.",
    )
