"""Requests to a Temporal server that ends some of them early, and that may be away for a while.

Theory. A server that is started again knows what it knew, and each of our requests may be repeated: operations and
workflows have ids, and it takes each once. So a request that finds no server is made again, until there was none
for `SERVER_S`, and so is one that the server has no room for now. The client library does not repeat them
(`sandbox.cluster.temporal_client`): the server takes an operation once in each history of its task, so it is looked for
in the earlier ones before it is sent again (`sandbox.cluster.task_updates`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.operations import OperationName, TaskOperation

SERVER_S = 60.0
"""How long callers ask again while the server is away; reached: `network_error`."""

_TRY_LATER = {RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.ABORTED}
"""What a server says that is there and takes no request now, as of an eleventh operation of a task at once."""

_PAUSE_S = 0.5
_LULL_S = 30.0
"""A server that no request missed for so long was there meanwhile. That a network is silent is noticed earlier."""

_UNANSWERED = {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
_AWAY = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL}
"""What a request ends with if its connection breaks, or if there is none."""

_ResultT = TypeVar("_ResultT")


class _ServerAbsence:
    """Of a server: from a request that found none until one is answered, or until none failed for `_LULL_S`: one that
    waits for the end of an operation may be answered much later.
    """

    def __init__(self) -> None:
        self._began_at = self._noted_at = -math.inf

    def note(self) -> None:
        """A request found no server."""
        now = time.monotonic()
        if not self.is_on:
            self._began_at = now
        self._noted_at = now

    def end(self) -> None:
        """A request was answered."""
        self._noted_at = -math.inf

    @property
    def is_on(self) -> bool:
        return time.monotonic() - self._noted_at < _LULL_S

    @property
    def is_too_long(self) -> bool:
        return self.is_on and time.monotonic() - self._began_at >= SERVER_S


class ServerRequests:
    """Those of one connection."""

    def __init__(self) -> None:
        self._absence = _ServerAbsence()

    @property
    def is_away(self) -> bool:
        """Whether requests found no server lately, and none was answered since."""
        return self._absence.is_on

    async def ask(self, request: Callable[[], Awaitable[_ResultT]], wait_s: float) -> _ResultT:
        """The answer to a request that may be repeated. Raises: `TimeoutError` when the time is over; `RPCError` if it
        found no server for `SERVER_S`, or when the time is over and all requests together found none for so long; and
        for what the server refuses.

        The server ends a request early if its worker was lost: as cancelled, or as one that took too long. The client's
        own limit, `rpc_timeout`, is no help for updates: it is that of a single request, and the client asks again.
        """
        own, failure = _ServerAbsence(), None
        try:
            async with asyncio.timeout(wait_s) as limit:
                while True:
                    try:
                        answer = await request()
                    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                        if isinstance(error.__cause__, asyncio.CancelledError):  # by our own limit, or by the caller
                            raise (TimeoutError if limit.expired() else asyncio.CancelledError) from error
                    except RPCError as error:
                        failure = error
                        self._note(error, own)
                    else:
                        self._absence.end()
                        return answer
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            if failure is not None and self._absence.is_too_long:  # a caller may ask often, for a moment each
                raise failure from None
            raise

    def _note(self, error: RPCError, own: _ServerAbsence) -> None:
        """`own`: of the one request that failed. Raises: the error, unless the request is to be made again."""
        if error.status in _AWAY:
            self._absence.note()
            own.note()
            if own.is_too_long:
                raise error
        elif error.status not in _UNANSWERED:
            self._absence.end()
            own.end()
            if error.status not in _TRY_LATER:
                raise error


def make_server_error(address: str, error: Exception, operation: TaskOperation | None) -> SandboxError:
    """For what was not answered. `operation`: what it was about."""
    if isinstance(error, RPCError) and (namespace := _find_missing_namespace(error)) is not None:
        return SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The Temporal server at {address} has no namespace {namespace[:100]!a}",
            details=str(error)[:500],
            hint="Correct cluster.namespace, or create that namespace on the server.",
        )
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


def _find_missing_namespace(error: RPCError) -> str | None:
    """The server answers with one and the same status for it and for a task that it does not know."""
    missing = NamespaceNotFoundFailure()
    return missing.namespace if any(detail.Unpack(missing) for detail in error.grpc_status.details) else None


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
