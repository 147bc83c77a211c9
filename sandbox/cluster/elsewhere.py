"""Which tasks are on the cluster, and what each part of a controller with a cluster has in common.

Theory. The methods of `Workbench` are overridden in parts, by room. A method with the decorator `elsewhere` is about
tasks of the cluster; for a task of this home that of `Workbench` is called.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from sandbox.cluster.asked_operations import AskedOperations
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import TASK_ID_PATTERN, Task
from sandbox.store import placed_tasks
from sandbox.store.short_ids import complete_owner_id
from sandbox.workbench import Workbench

_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])


def elsewhere(method: _MethodT) -> _MethodT:
    """The method is about tasks of the cluster; for one of this home, that of `Workbench` is called."""
    local = getattr(Workbench, method.__name__)

    @wraps(method)
    def call(self: TasksElsewhere, owner: str, *args: Any, **kwargs: Any) -> Any:
        owner = self.complete_owner(owner)
        return (method if self.is_elsewhere(owner) else local)(self, owner, *args, **kwargs)

    return cast("_MethodT", call)


class TasksElsewhere(Workbench):
    """A controller that asks a cluster about tasks that are not in its home."""

    def __init__(self, workbench: Workbench, asked: AskedOperations) -> None:
        self.__dict__ = copy.copy(workbench.__dict__)
        self._asked = asked
        self._cancellations: dict[str, Callable[[], bool]] = {}
        """By run that was started here: whether its caller cancelled it."""

    def take_losses(self, owner: str | None = None) -> tuple[str, ...]:
        """As in `Workbench`."""
        if owner is None:
            return self._asked.take_losses()
        home = self._services.home
        placed = placed_tasks.find_placed_run(home, owner)
        return self._asked.take_losses(
            placed.task_id if placed else placed_tasks.find_task_of_run(home, owner) or owner
        )

    def complete_owner(self, name: str) -> str:
        """The whole id of a task or run that this home knows, from its beginning or `-`; any other name unchanged.

        Raises: `invalid_input`; `not_found` for `-`.
        """
        return complete_owner_id(self._services.home, name)

    def is_elsewhere(self, owner: str) -> bool:
        """Whether this is the whole id of a task that this home does not have, or of a run that it asked for."""
        if re.fullmatch(TASK_ID_PATTERN, owner):
            return not self._services.home.task(owner).exists()
        home = self._services.home
        return bool(placed_tasks.find_placed_run(home, owner) or placed_tasks.find_task_of_run(home, owner))

    def _find_origin(self, repo_id: str, snapshot: str) -> Task | None:
        """The task of the cluster that has a snapshot, if this home placed it for the repository."""
        home = self._services.home
        task_id = placed_tasks.find_task_of_snapshot(home, snapshot)
        found = None if task_id is None else placed_tasks.find_placed_task(home, task_id)
        return found if found is not None and found.repo_id == repo_id else None

    def _make_refusal(self, what: str, owner: str) -> SandboxError:
        """For a method of which no operation is."""
        return not_on_cluster_error(what, owner)


def on_workers_only(method: _MethodT) -> _MethodT:
    """Around a method with `elsewhere` that this home carries out for none of its repositories: a worker does so for a
    task. Raises: `invalid_input` for a repository.
    """

    @wraps(method)
    def call(self: TasksElsewhere, owner: str, *args: Any, **kwargs: Any) -> Any:
        require_task_of_packages(self.complete_owner(owner))
        return method(self, owner, *args, **kwargs)

    return cast("_MethodT", call)


def require_task_of_packages(owner: str) -> None:
    """Raises: `invalid_input` for a repository, of which no worker is."""
    if not owner.startswith("task-"):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Packages of the repository {owner[:100]} are not fetched on a cluster: each worker has its own",
            hint="Name a task: its worker fetches them. Or use a home without the setting cluster.address.",
            reason="not_on_cluster",
        )


def bind_state(arguments: Mapping[str, Any], expected_tree: str | None) -> dict[str, Any]:
    """The arguments of an operation, with the state that was approved, if there is one. A worker of an earlier version
    that does not know the argument refuses the operation. One exception: some of these know it for a fork, and ignore
    it with a snapshot; they create the fork without comparing the profile that was approved.
    """
    return dict(arguments) if expected_tree is None else {**arguments, "expected_tree": expected_tree}


def encode(content: str | bytes) -> str:
    """As base64, for the arguments of an operation."""
    return base64.b64encode(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content).decode()


def not_on_cluster_error(what: str, owner: str) -> SandboxError:
    """`what`: the method or option that no operation has. `owner`: the task or run that it was asked about."""
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"{what.replace('_', ' ')} is not carried out on a cluster, and {owner[:100]} is not in this home",
        hint="docs/cluster.md lists what is. Look for a typing error in the id if the task should be here.",
        reason="not_on_cluster",
    )
