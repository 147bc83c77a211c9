"""A controller with a cluster: operations on tasks that are not in this home go to the worker that has them.

Theory. Surfaces call a `Workbench`. This one has the same methods, and asks the dispatcher for those that a worker or
the controller that publishes can carry out. New tasks are placed on the cluster; repositories, images and settings are
those of this home. Each other method that takes a task refuses one of the cluster by name, so that no surface takes
silence for an answer. A task in this home is this home's, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from types import FunctionType
from typing import Any

from sandbox.cluster.asked_operations import AskedOperations
from sandbox.cluster.connecting import connect_dispatcher
from sandbox.cluster.remote_checks import RemoteChecks
from sandbox.cluster.remote_delivery import RemoteDelivery
from sandbox.cluster.remote_tasks import RemoteTasks
from sandbox.workbench import Workbench

_ANYWHERE = frozenset(
    {
        "complete_id",
        "create_named_task",
        "end_task_state",
        "export_changes",
        "find_done_operation",
        "give_up_unfinished_task",
        "send_task_state",
        "send_unsent_task_state",
        "share_artifact",
    }
)
"""Methods of workers, and those that only look at an id."""


@contextmanager
def distribute(workbench: Workbench) -> Iterator[Workbench]:
    """The same controller, which asks the cluster of its settings about tasks that are not here."""
    asked = AskedOperations(partial(connect_dispatcher, workbench))
    try:
        yield ClusterWorkbench(workbench, asked)
    finally:
        asked.close()


def _refuse_others(cls: type[ClusterWorkbench]) -> type[ClusterWorkbench]:
    """Give the class a method that refuses, for each method of `Workbench` that takes a task and is not its own."""
    for name, method in vars(Workbench).items():
        if name.startswith("_") or name in _ANYWHERE or not isinstance(method, FunctionType):
            continue
        if getattr(cls, name) is not method:  # a part of it has its own
            continue
        if [*signature(method).parameters][1:2] in (["task_id"], ["owner_id"]):
            setattr(cls, name, _refuse_elsewhere(name, method))
    return cls


def _refuse_elsewhere(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: ClusterWorkbench, owner: str, *args: Any, **kwargs: Any) -> Any:
        owner = self.complete_owner(owner)
        if self.is_elsewhere(owner):
            raise self._make_refusal(name, owner)
        return method(self, owner, *args, **kwargs)

    return call


@_refuse_others
class ClusterWorkbench(RemoteTasks, RemoteChecks, RemoteDelivery):
    """See the module. Made by `distribute`; `acting` copies it."""
