"""The state of tasks in a hub, so that another host can go on with a task when this one is lost.

Theory. After each operation the task's files are sent to the hub as one commit on the task's head, under the task's ref
of this epoch (`git.push.hub_refs`). The commit's message is the task's record. A host that continues the task creates
the ref of the next epoch and deletes this one in one step, and lays out the files of its commit. What this host knows
of its own epoch is in a file of the task: the lease of a push is never what the hub says now, or a host that was
replaced would adopt its successor's state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, objects, refs
from sandbox.git.process import Git
from sandbox.git.push.hub_refs import (
    HubList,
    RefUpdate,
    find_end,
    list_epochs,
    list_hub,
    name_end_ref,
    name_ref,
    update_refs,
)
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.transport import RemoteAccess, fetch_ref
from sandbox.models import TASK_ID_PATTERN, Task, TaskOptions, WorkspaceKind
from sandbox.models.operations import DoneOperation
from sandbox.private_folders import make_private
from sandbox.remotes import Remote
from sandbox.store.home import Home, read_json, write_json
from sandbox.store.operation_answers import hold_operations, list_epochs_asked
from sandbox.workbench.checks.stop import stop_checks
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import hub_states
from sandbox.workbench.repositories import clone
from sandbox.workbench.tasks.lifecycle import (
    ForkOrigin,
    close_task,
    compare_task,
    draft_task,
    find_start,
    is_on_remote,
    lock_task,
    require_possible_options,
    require_task_kind,
    start_task,
)
from sandbox.workbench.tasks.snapshots import ForkRequest, fork_task

_TRIES = 3
_NO_STATE = "no_state"
_DONE_FILE, _FORKED_FILE, _UNSENT_FILE = "done.json", "forked.json", "unsent"
IMPORT_MARK = "published.json"
"""A record of a task that this home only publishes (`sandbox.workbench.delivery.imported_tasks`)."""

_STOP_S = 60.0  # for an operation of an ended epoch: its checks were told to stop
_LOCK_WAIT_S = 10.0
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class NewTask:
    """A task to create under an id that was drawn elsewhere. `url`: of its repository."""

    task_id: str
    url: str
    prompt: str = ""
    base_branch: str | None = None
    options: TaskOptions = field(default_factory=TaskOptions)


def create_named_task(services: Services, new: NewTask) -> Task:
    """Clone or update the repository, and create the task. Raises: as `clone` and `create_task`; `conflict` if there
    is a task of this id.
    """
    _require_unknown(services, new.task_id)
    require_possible_options(services, new.options)
    require_task_kind(new.options.workspace_kind)
    repository = clone.clone(services, new.url).repository
    git = services.repositories.open(repository.id)[1]
    base = new.base_branch or "HEAD"
    start = find_start(services, repository, git, base)
    base_tree = clone.fetch_whole_tree(services, repository, git, start[0])
    task = draft_task(services, repository.id, new.task_id, new.prompt, start, new.options)
    own = {"base_on_remote": is_on_remote(git, base, start[0])}
    return start_task(services, git, task.model_copy(update=own), base_tree, None)


def fork_named_task(services: Services, task_id: str, wanted: ForkRequest) -> Task:
    """As `fork_task`, under an id that was drawn elsewhere. Raises: also `conflict` if there is a task of this id."""
    _require_unknown(services, wanted.new_id)
    if wanted.options is not None:
        require_possible_options(services, wanted.options)
    return fork_task(services, task_id, wanted)


def send_state(services: Services, hub_url: str, task_id: str, epoch: int, done: DoneOperation | None = None) -> str:
    """Send the task's record and files to the hub; returns the commit there. `done`: the operation that made them.

    Raises: `conflict` (`reason`: `epoch_ended`) if another host has the task now; network errors; `invalid_input`;
    `quota_exceeded`.
    """
    note = find_record(services.home, task_id, _UNSENT_FILE)
    with lock_task(services, task_id) as task:
        known = _read_sent(services.home, task_id, epoch)
        make_private(note.parent)
        note.touch(mode=0o600)
        with scratch_objects(services.repositories.open(task.repo_id)[1]) as git:
            with compare_task(services, task) as opened:
                demand = demand_of_objects(opened.changes.tree) + RECORD_DEMAND
                with services.disk.admit(Writer.LOOK, demand):
                    tree = new_commits.build_tree(git, task.head_commit, opened.changes.tree)
                    commit = hub_states.commit_state(git, task, tree, done)
            run_with_hub(services, hub_url, lambda access: _send(git, access, task_id, epoch, RefUpdate(commit, known)))
        _write_sent(services.home, task_id, epoch, commit)
    return commit


def send_unsent_state(services: Services, hub_url: str, task_id: str, epoch: int) -> None:
    """As `send_state`, if the last one of an operation did not reach the hub, or may not have. Raises: as that."""
    if find_record(services.home, task_id, _UNSENT_FILE).exists() and services.home.task(task_id).exists():
        send_state(services, hub_url, task_id, epoch)


def has_latest_state(services: Services, hub_url: str, task_id: str) -> bool:
    """Whether this home has a task, and the hub knows of no later epoch of it. Raises: network errors; as `parse`."""
    if not services.home.task(task_id).exists():
        return False
    git = services.repositories.open(_find_repo(services.home, task_id))[1]
    there = run_with_hub(services, hub_url, lambda access: list_epochs(git, access, task_id))
    return max(there, default=0) == find_sent_epoch(services.home, task_id)


def end_state(services: Services, hub_url: str, task_id: str, epoch: int, done: DoneOperation | None) -> None:
    """Delete the task's ref of this epoch from the hub: the task has ended. `done`: the operation that closed it, for
    the host that is asked for it again. Raises: as `send_state`.
    """
    known = _read_sent(services.home, task_id, epoch)
    if known is None:
        return
    with scratch_objects(services.repositories.open(_find_repo(services.home, task_id))[1]) as git:
        end = None if done is None else hub_states.commit_end(git, done)
        run_with_hub(services, hub_url, lambda access: _end(git, access, task_id, epoch, (known, end)))
    _forget_sent(services.home, task_id)


def take_over(services: Services, hub_url: str, url: str, task_id: str, epoch: int) -> Task:
    """Continue a task of another host from its last state in the hub, as `epoch`. The other host is refused from now.
    What this home has of the task from an earlier epoch is given up once the later state is here.

    Raises: `not_found` if the hub has no state of it; `conflict` if this home has another task of this id or still
    works on it, or a host with a later epoch has it; `unsafe_repository` for a state that cannot be of this task;
    network errors.
    """
    require_task_id(task_id)
    with _without_operations(services, task_id, epoch):
        repository = clone.clone(services, url).repository
        git = services.repositories.open(repository.id)[1]
        local = f"refs/sandbox/{task_id}/hub"

        def read(commit: str) -> hub_states.HubState:
            return hub_states.read_state(git, commit, task_id, repository.id)

        try:
            state = fetch_from_hub(services, hub_url, lambda access: _claim(git, access, (task_id, epoch), local, read))
            found = read(state)
            task = _describe_here(services, found.task)
            base_tree = clone.fetch_whole_tree(services, repository, git, task.base_commit)
            origin = ForkOrigin(task, task.head_commit, objects.tree_of(git, state), git, task.base_commit)
            if services.home.task(task_id).exists():
                _give_up_former(services, task_id)  # not before the later state is here: until then it is the only one
            _write_sent(services.home, task_id, epoch, state)  # first: it tells what an interrupt here leaves
            started = start_task(services, git, task, base_tree, origin)
            _write_done(services.home, task_id, found.done)
        except SandboxError as error:
            if error.reason != _NO_STATE:
                raise
            return _take_end(services, git, hub_url, task_id, epoch)
        finally:
            refs.drop_ref(git, local)
    return started


def _describe_here(services: Services, recorded: Task) -> Task:
    """The record of a task that was fetched from the hub, in this home."""
    has_files = recorded.workspace_kind is not WorkspaceKind.TREE
    place = services.home.worktree(recorded.repo_id, recorded.id) if has_files else None
    own = hub_states.without_claims(recorded, services.caller.session)
    return own.model_copy(update={"worktree_path": place})


def _take_end(services: Services, git: Git, hub_url: str, task_id: str, epoch: int) -> Task:
    """Take note of how a task was closed, so that this home can answer the operation that did it: its answer was lost
    with another host. The task is not here then. Raises: `not_found` if the hub does not say; `unsafe_repository`.
    """
    local = f"refs/sandbox/{task_id}/hub"

    def fetch(access: RemoteAccess) -> None:
        end = find_end(git, access, task_id)
        if end is None:
            raise _no_state_error(task_id)
        fetch_ref(git, access, end, local, partial=False)

    fetch_from_hub(services, hub_url, fetch)
    try:
        commit = hub_states.require_state_commit(git, local, task_id)
        done, task = hub_states.read_end(git, commit, task_id)
    finally:
        refs.drop_ref(git, local)
    if services.home.task(task_id).exists():
        _give_up_former(services, task_id)
    _write_sent(services.home, task_id, epoch, commit)
    _write_done(services.home, task_id, done)
    return hub_states.without_claims(task, services.caller.session).model_copy(update={"status": task.status})


def give_up_unfinished(services: Services, task_id: str, epoch: int) -> None:
    """Remove a task that this home began to create in an earlier epoch, and was interrupted. The caller holds the lock
    of its operations. Raises: `conflict` (`reason`: `task_exists`) if it still works on it.
    """
    if services.home.task(task_id).exists() and _is_former(services.home, task_id, epoch):
        with _busy_on_error(task_id):
            stop_checks(services, task_id)
        _give_up_former(services, task_id)


def look_at_hub(services: Services, hub_url: str, repo_id: str) -> HubList:
    """All tasks in the hub. `repo_id`: of any repository here. Raises: network errors."""
    git = services.repositories.open(repo_id)[1]
    return run_with_hub(services, hub_url, lambda access: list_hub(git, access))


def forget_ends(services: Services, hub_url: str, repo_id: str, ends: Mapping[str, str]) -> None:
    """Delete refs of closed tasks from the hub. `ends`: their commits. Raises: `conflict`; network errors."""
    git = services.repositories.open(repo_id)[1]
    updates = {ref: RefUpdate(None, oid) for ref, oid in ends.items()}
    run_with_hub(services, hub_url, lambda access: update_refs(git, access, updates))


def give_up_moved(services: Services, hub_url: str, task_id: str) -> bool:
    """Remove what this home has of a task that another host has now, or has closed, as the hub says. False: neither.

    Raises: `conflict` while an operation on it is in progress; network errors.
    """
    with hold_operations(services.home, task_id, 0.0):
        sent = find_sent_epoch(services.home, task_id)
        if sent is None or not services.home.task(task_id).exists():
            return False
        git = services.repositories.open(_find_repo(services.home, task_id))[1]
        there = run_with_hub(services, hub_url, lambda access: list_epochs(git, access, task_id))
        is_closed = run_with_hub(services, hub_url, lambda access: find_end(git, access, task_id))
        if max(there, default=0) <= sent and not is_closed:
            return False
        _give_up_former(services, task_id)
    return True


def begin_fork(services: Services, fork_id: str, operation_id: str, epoch: int) -> None:
    """Note which operation makes a fork, in which epoch. If it was interrupted here before, remove the fork that it
    left: the operation was not answered, so no caller has that one. The caller holds the lock of its operations.

    Raises: `conflict` (`reason`: `task_exists`) if this home still works on it.
    """
    require_task_id(fork_id)
    note = find_record(services.home, fork_id, _FORKED_FILE)
    known = read_json(note)
    if services.home.task(fork_id).exists():
        if known is None or known["operation"] != operation_id or list_epochs_asked(services.home, fork_id):
            return
        _give_up_former(services, fork_id)
    make_private(note.parent)
    write_json(note, {"schema_version": 1, "operation": operation_id, "epoch": epoch})


@contextmanager
def _without_operations(services: Services, task_id: str, epoch: int) -> Iterator[None]:
    """Nothing is done with the task in the body. What this home still does with it is of an epoch that has ended, so
    its checks are stopped.

    Raises: `conflict` (`reason`: `task_exists`) if this home has another task of this id, or does not stop.
    """
    if services.home.task(task_id).exists() and not _is_former(services.home, task_id, epoch):
        raise SandboxError(ErrorCode.CONFLICT, f"This home has {task_id} already", reason="task_exists")
    with ExitStack() as stack:
        with _busy_on_error(task_id):
            if services.home.task(task_id).exists():
                stop_checks(services, task_id)
                with services.home.locked(task_id, _LOCK_WAIT_S):
                    pass  # what holds it longer is reported before anything is claimed
            stack.enter_context(hold_operations(services.home, task_id, _STOP_S))
        yield


def _is_former(home: Home, task_id: str, epoch: int) -> bool:
    """Whether the task of this id in this home is of an epoch before this one. One that was not sent to the hub is of
    the first epoch for which this home was asked to create it, or to make it as a fork.
    """
    if find_record(home, task_id, IMPORT_MARK).exists():
        return False
    sent = find_sent_epoch(home, task_id)
    return (min(_list_epochs_begun(home, task_id), default=epoch) if sent is None else sent) < epoch


def _list_epochs_begun(home: Home, task_id: str) -> set[int]:
    """The epochs in which this home began with a task. A note of a fork without one is by an earlier version of
    this program, which was interrupted.
    """
    forked = read_json(find_record(home, task_id, _FORKED_FILE))
    return list_epochs_asked(home, task_id) | (set() if forked is None else {int(forked.get("epoch", 0))})


def _give_up_former(services: Services, task_id: str) -> None:
    """Remove what this home has of the task from an earlier epoch: the state in the hub is the later one. Snapshots of
    files that were never committed stay.
    """
    with _busy_on_error(task_id):
        former = close_task(services, task_id, delete=True, discard=True)
    git = services.repositories.open(former.repo_id)[1]
    refs.drop_ref(git, f"refs/heads/{former.branch}")
    services.home.task(task_id).unlink()
    _forget_sent(services.home, task_id)


@contextmanager
def _busy_on_error(task_id: str) -> Iterator[None]:
    """Raises: `conflict` (`reason`: `task_exists`) for each error in the body, so that another host is asked."""
    try:
        yield
    except SandboxError as error:
        brief, details = f"This host still works on {task_id}", f"{error.brief} {error.details}"
        raise SandboxError(ErrorCode.CONFLICT, brief, details=details, reason="task_exists") from error


def _no_state_error(task_id: str) -> SandboxError:
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"The hub has no state of {task_id}",
        details="Its host was lost before the first operation on it had ended, or it was closed long ago.",
        hint="Create the task again.",
        reason=_NO_STATE,
    )


def find_done(home: Home, task_id: str, epoch: int) -> DoneOperation | None:
    """The operation that made the state which this home continues a task from, if the state records it.

    Raises: `conflict` (`reason`: `epoch_ended`) if this home has the task for another epoch.
    """
    _read_sent(home, task_id, epoch)
    found = read_json(find_record(home, task_id, _DONE_FILE))
    return None if found is None else DoneOperation.model_validate(found)


def _send(git: Git, access: RemoteAccess, task_id: str, epoch: int, update: RefUpdate) -> None:
    """A lease that fails although the ref of our epoch is there is our own push: its answer was lost."""
    ref = name_ref(task_id, epoch)
    if update.expected is None and (
        max(list_epochs(git, access, task_id), default=0) > epoch or find_end(git, access, task_id)
    ):
        raise SandboxError(ErrorCode.CONFLICT, f"{task_id} went on on another host", reason="epoch_ended")
    try:
        update_refs(git, access, {ref: update})
    except SandboxError as error:
        if error.reason != "epoch_ended":
            raise
        there = list_epochs(git, access, task_id)
        if epoch not in there or max(there) != epoch:
            raise
        if there[epoch] != update.new:
            update_refs(git, access, {ref: RefUpdate(update.new, there[epoch])})


def _end(git: Git, access: RemoteAccess, task_id: str, epoch: int, commits: tuple[str, str | None]) -> None:
    """Delete the task's refs, also those of earlier epochs that a lost host sent late. `commits`: what we sent last,
    and how the task was closed. That our ref is gone and there is an end is our own push: its answer was lost.
    """
    known, end = commits
    there = list_epochs(git, access, task_id)
    if not there and find_end(git, access, task_id):
        return
    updates = {name_ref(task_id, number): RefUpdate(None, oid) for number, oid in there.items() if number < epoch}
    updates[name_ref(task_id, epoch)] = RefUpdate(None, known)
    if end is not None:
        updates[name_end_ref(task_id, datetime.now(UTC).date())] = RefUpdate(end, None)
    update_refs(git, access, updates)


def _claim(git: Git, access: RemoteAccess, wanted: tuple[str, int], local: str, read: Callable[[str], object]) -> str:
    """Fetch the last state and make it ours; again if its host changed it meanwhile, or another one claimed it.

    `wanted`: the task's id and our epoch. `read`: raises for a state that cannot be used, which is not claimed then.
    """
    task_id, epoch = wanted
    for attempt in range(_TRIES):
        there = list_epochs(git, access, task_id)
        if not there:
            raise _no_state_error(task_id)
        last = max(there)
        if last >= epoch:
            raise SandboxError(ErrorCode.CONFLICT, f"Another host continues {task_id}", reason="epoch_ended")
        try:
            fetch_ref(git, access, name_ref(task_id, last), local, partial=False)
        except SandboxError:
            if attempt == _TRIES - 1 or list_epochs(git, access, task_id) == there:
                raise
            continue  # git does not say that a ref is gone but by its words
        state = hub_states.require_state_commit(git, local, task_id)
        read(state)
        claimed = hub_states.commit_claim(git, state)
        updates = {name_ref(task_id, epoch): RefUpdate(claimed, None)}
        updates |= {name_ref(task_id, number): RefUpdate(None, oid) for number, oid in there.items()}
        try:
            update_refs(git, access, updates)
        except SandboxError as error:
            if error.reason != "epoch_ended" or attempt == _TRIES - 1:
                raise
            continue
        return claimed
    raise AssertionError


def require_task_id(task_id: str) -> None:
    """Raises: `invalid_input` for what is no id of a task."""
    if re.fullmatch(TASK_ID_PATTERN, task_id) is None:  # it becomes part of paths and refs
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{task_id[:100]!a} is no id of a task")


def _require_unknown(services: Services, task_id: str) -> None:
    require_task_id(task_id)
    if services.home.task(task_id).exists():
        raise SandboxError(ErrorCode.CONFLICT, f"This home has {task_id} already", reason="task_exists")


def run_with_hub(services: Services, hub_url: str, action: Callable[[RemoteAccess], _ResultT]) -> _ResultT:
    """Do something at the hub that fetches no objects, with our credentials. Raises: `invalid_input` for a path;
    network errors.
    """
    return services.remotes.run_with_access(_parse_hub(services, hub_url), action)


def fetch_from_hub(services: Services, hub_url: str, action: Callable[[RemoteAccess], _ResultT]) -> _ResultT:
    """As `run_with_hub`; it may fetch as much as the disk has room for. Raises: also `quota_exceeded`."""
    return clone.run_transfer(services, _parse_hub(services, hub_url), action)


def _parse_hub(services: Services, hub_url: str) -> Remote:
    remote = services.remotes.parse(hub_url)
    if remote.protocol == "file":
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A hub is a repository on a server",
            hint="Give cluster.hub an https or ssh URL that every worker reaches.",
        )
    return remote


def _find_repo(home: Home, task_id: str) -> str:
    document = read_json(home.task(task_id)) or {}
    return str(document.get("repo_id", ""))


def find_record(home: Home, task_id: str, name: str) -> Path:
    """A file about a task of a cluster, which goes with its answers. Raises: `invalid_input` for the id."""
    require_task_id(task_id)
    return home.repositories / "operations" / task_id / name


def sent_file(home: Home, task_id: str) -> Path:
    """What this home sent of a task last, and for which epoch it has the task."""
    return find_record(home, task_id, "hub.json")


def find_sent_epoch(home: Home, task_id: str) -> int | None:
    """The epoch for which this home has a task of a cluster; None if it sent no state of it to the hub."""
    found = read_json(sent_file(home, task_id))
    return None if found is None else int(found["epoch"])


def _read_sent(home: Home, task_id: str, epoch: int) -> str | None:
    """What this host sent last in this epoch. Raises: `conflict` if it was given the task for another epoch."""
    found = read_json(sent_file(home, task_id))
    if found is None:
        return None
    if found["epoch"] != epoch:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"This host has {task_id} for epoch {found['epoch']}, not {epoch}",
            reason="epoch_ended",
        )
    return str(found["commit"])


def _forget_sent(home: Home, task_id: str) -> None:
    """The task is not here any more, or has ended."""
    sent_file(home, task_id).unlink(missing_ok=True)
    find_record(home, task_id, _UNSENT_FILE).unlink(missing_ok=True)


def _write_done(home: Home, task_id: str, done: DoneOperation | None) -> None:
    path = find_record(home, task_id, _DONE_FILE)
    if done is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, done.model_dump(mode="json"))


def _write_sent(home: Home, task_id: str, epoch: int, commit: str) -> None:
    """What the hub has and this home, too."""
    path = sent_file(home, task_id)
    make_private(path.parent)
    write_json(path, {"schema_version": 1, "epoch": epoch, "commit": commit})
    find_record(home, task_id, _UNSENT_FILE).unlink(missing_ok=True)
