"""The workspace that the running code is bound to.

A binding belongs to a context (`contextvars`): each task of asyncio has its own copy, and what a task binds, others do
not see. A new `threading.Thread` begins with an empty context before Python 3.14, so it would see the default. Start
its function through `in_current_workspace`, or through `asyncio.to_thread`, which copies the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import ParamSpec, TypeVar

from sandbox.models import WorkspaceKind
from sandbox.workspaces.folder_workspace import FolderWorkspace, OwnFolder
from sandbox.workspaces.local_workspaces import find_directory
from sandbox.workspaces.workspace import Workspace

_Parameters = ParamSpec("_Parameters")
_ResultT = TypeVar("_ResultT")
_bound: ContextVar[Workspace | None] = ContextVar("sandbox_workspace", default=None)


def current_workspace() -> Workspace:
    """The bound workspace; without one, a `local` workspace at the current directory."""
    return _bound.get() or FolderWorkspace("local", WorkspaceKind.LOCAL, OwnFolder(find_directory(None)), writable=True)


@contextmanager
def bind_workspace(workspace: Workspace) -> Iterator[Workspace]:
    """Make this the current workspace until the `with` block ends. Bindings may be nested."""
    token = _bound.set(workspace)
    try:
        yield workspace
    finally:
        _bound.reset(token)


def in_current_workspace(function: Callable[_Parameters, _ResultT]) -> Callable[_Parameters, _ResultT]:
    """The function, bound to the workspace that is current now: for threads and executors.

    Each call runs in a copy of the context, so several threads may use the result at the same time.
    """
    context = copy_context()

    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _ResultT:
        return context.copy().run(function, *args, **kwargs)

    return run
