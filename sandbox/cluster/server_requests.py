"""Requests to a Temporal server that ends some of them early, and that may be away for a while.

Theory. A server that is started again knows what it knew, and each of our requests may be repeated: operations and
workflows have ids, and it takes each once. So a request that finds no server is made again, until there was none
for `SERVER_S`. The client library repeats requests, too, but gives up after some seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationName, TaskOperation

SERVER_S = 60.0
"""How long callers ask again while the server is away; reached: `network_error`."""

_PAUSE_S = 0.5
_UNANSWERED = {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
_AWAY = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL}
"""What a request ends with if its connection breaks, or if there is none."""

_ResultT = TypeVar("_ResultT")


class ServerRequests:
    """Those of one connection."""

    def __init__(self) -> None:
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether the last request found no server."""
        return self._away_since is not None

    async def ask(self, request: Callable[[], Awaitable[_ResultT]], wait_s: float) -> _ResultT:
        """The answer to a request that may be repeated. Raises: `TimeoutError` when the time is over; `RPCError` if the
        server was away for `SERVER_S`, and for what it refuses.

        The server ends a request early if its worker was lost: as cancelled, or as one that took too long. The client's
        own limit, `rpc_timeout`, is no help for updates: it is that of a single request, and the client asks again.
        """
        async with asyncio.timeout(wait_s):
            while True:
                began = time.monotonic()
                try:
                    answer = await request()
                except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                    if isinstance(error.__cause__, asyncio.CancelledError):  # by our own limit
                        raise TimeoutError from error
                except RPCError as error:
                    if error.status in _AWAY:
                        self._note_absence(began, error)
                    elif error.status not in _UNANSWERED:
                        raise
                else:
                    self._away_since = None
                    return answer
                await asyncio.sleep(_PAUSE_S)

    def _note_absence(self, began: float, error: RPCError) -> None:
        """Raises: the error, if the server was away for too long. The next request then has as long again."""
        if self._away_since is None:
            self._away_since = began
        if time.monotonic() - self._away_since >= SERVER_S:
            self._away_since = None
            raise error


def make_server_error(address: str, error: Exception, operation: TaskOperation | None) -> SandboxError:
    """For what was not answered. `operation`: what it was about."""
    if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
        return SandboxError(
            ErrorCode.NOT_FOUND,
            "The cluster does not know this task or operation",
            details=str(error)[:500],
            hint="Ask for the task's state with its whole id.",
        )
    about = f" {operation.name} of {operation.task_id}" if operation else ""
    known = {"task_id": operation.task_id, "operation_id": operation.id} if operation else {}
    return SandboxError(
        ErrorCode.NETWORK_ERROR,
        f"The Temporal server at {address} stopped answering{about}",
        details=str(error)[:500],
        hint=_advise(operation),
        reason="server_lost",
        data=known,
    )


def _advise(operation: TaskOperation | None) -> str:
    if operation is None:
        return "Look whether it runs and can be reached, then ask again."
    if operation.name is OperationName.CREATE:
        return (
            "The task may be created when the server answers again; then `sandbox task close "
            f"{operation.task_id} --delete --discard` removes it."
        )
    return (
        "It may have been carried out, or still be. When the server answers again, the same operation has its one "
        f"answer: `sandbox cluster ask {operation.task_id} {operation.name} ARGUMENTS --id {operation.id}`."
    )
