"""A task of another host on the controller that publishes: its commits from the hub, without its claims.

Theory. The hub's state was written by a host that ran untrusted code, so only its commits and texts are taken. They
become a task without files of this home, under the same id. Gate, approvals and journal are then those of any task
here: a verdict counts if it was made here, for exactly this tree. What a host says of verdicts, its profile and what
was delivered is left out. Edits were made elsewhere, so each path that a push would send is held against the path
policy, as edits are here.
"""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import diff, refs
from sandbox.git.log import list_unpublished_paths
from sandbox.git.maintenance import store_objects
from sandbox.git.process import Git
from sandbox.git.push.hub_refs import list_epochs, name_ref
from sandbox.git.transport import RemoteAccess, fetch_ref
from sandbox.models import Task, TaskOptions, TaskStatus, WorkspaceKind
from sandbox.policy.paths import show_path
from sandbox.policy.writes import parse_writable_path
from sandbox.private_folders import make_private
from sandbox.store.home import read_json, write_json
from sandbox.store.records import find_task, save_task
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import hub, hub_states
from sandbox.workbench.repositories import clone
from sandbox.workbench.tasks.lifecycle import draft_task, lock_task, start_task

_GITLINK = "160000"


def import_task(services: Services, hub_url: str, url: str, task_id: str, commit: str) -> Task:
    """Take a task's last commit from the hub, to publish it here. `commit`: the one that is asked for.

    Raises: `not_found` if the hub has no state of it; `conflict` (`reason`: `state_moved`) if its last commit is
    another one, or this home works on the task itself; `unsafe_path` for a path that the policy does not let an edit
    write; `unsafe_repository` for a state that cannot be of this task; network errors.
    """
    hub.require_task_id(task_id)
    mark = hub.find_record(services.home, task_id, hub.IMPORT_MARK)
    if services.home.task(task_id).exists() and read_json(mark) is None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"This home works on {task_id} itself, so it does not publish it",
            hint="A home that publishes is no worker: give it a cluster.role of its own.",
        )
    repository = clone.clone(services, url).repository
    git = services.repositories.open(repository.id)[1]
    local = f"refs/sandbox/{task_id}/hub"
    try:
        state = hub.fetch_from_hub(services, hub_url, lambda access: _fetch_state(git, access, task_id, local))
        recorded = hub_states.read_state(git, state, task_id, repository.id).task
        _require_commit(recorded, commit)
        _require_paths(services, git, recorded)
        base_tree = clone.fetch_whole_tree(services, repository, git, recorded.base_commit)
        if services.home.task(task_id).exists():
            return _move_task(services, git, recorded)
        make_private(mark.parent)
        write_json(mark, {"schema_version": 1, "repo_id": repository.id})
        return start_task(services, git, _draft(services, recorded), base_tree, None)
    finally:
        refs.drop_ref(git, local)


def _fetch_state(git: Git, access: RemoteAccess, task_id: str, local: str) -> str:
    """The last state of a task; its ref does not change."""
    there = list_epochs(git, access, task_id)
    if not there:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The hub has no state of {task_id}",
            hint="Its task was closed, or never had a commit.",
        )
    fetch_ref(git, access, name_ref(task_id, max(there)), local, partial=False)
    return hub_states.require_state_commit(git, local, task_id)


def _draft(services: Services, recorded: Task) -> Task:
    start = (recorded.head_commit, recorded.base_branch)
    options = TaskOptions(workspace_kind=WorkspaceKind.TREE.value)
    drafted = draft_task(services, recorded.repo_id, recorded.id, recorded.prompt, start, options)
    own = {name: getattr(recorded, name) for name in ("branch", "base_commit", "base_on_remote")}
    return drafted.model_copy(update={**own, "status": TaskStatus.COMMITTED})


def _move_task(services: Services, git: Git, recorded: Task) -> Task:
    """Give the task that was imported before its next commit, and its base, which a sync or checkout changes. What was
    delivered stays in its record.

    The difference that a person was shown is the one to the base, so a question names it: an approval does not hold for
    the same commit on another base (`sandbox.cluster.publisher`).
    """
    if find_task(services.home, recorded.id).branch != recorded.branch:
        raise hub_states.damaged_error(recorded.id, "its branch is another one than before")
    with lock_task(services, recorded.id) as task:
        branch = f"refs/heads/{task.branch}"
        if refs.resolve_ref(git, branch) != recorded.head_commit:  # it is, after a kill before the record was saved
            with store_objects(git):
                refs.move_ref(git, branch, recorded.head_commit, task.head_commit)
        names = ("head_commit", "base_commit", "base_branch", "base_on_remote")
        moved = {name: getattr(recorded, name) for name in names}
        return save_task(services.home, task.model_copy(update=moved))


def _require_commit(recorded: Task, commit: str) -> None:
    if recorded.head_commit != commit:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"The last commit of {recorded.id} is another one than the one to publish",
            details=f"in the hub {recorded.head_commit}, asked for {commit}",
            hint="No data was sent. Look at the task's status and diff, then publish its last commit. One that did not "
            "reach the hub is sent when the task is committed again.",
            reason="state_moved",
        )


def _require_paths(services: Services, git: Git, recorded: Task) -> None:
    """Each path that a commit to be sent changes, also one that a later commit takes back; and each that differs from
    the base, because a merge can take a file from a parent that the remote has on another branch.
    """
    changes = diff.diff_trees(git, recorded.base_commit, recorded.head_commit)
    changed = list_unpublished_paths(git, recorded.head_commit) | {change.path for change in changes}
    for raw in sorted(changed):
        parse_writable_path(show_path(raw), services.policies.paths, recorded.repo_id)
    for change in changes:
        if change.new_mode == _GITLINK:
            raise hub_states.damaged_error(recorded.id, f"{show_path(change.path)[:200]} is a nested repository")
