"""The histories of a task before its present one (Temporal: the earlier runs of its workflow).

Theory. A long history is replaced by a new one (`sandbox.cluster.task_workflow`). The answer of an operation stays at
the server, but with the history that accepted the operation: asked without the id of a run, the server looks into the
present one only, and says `NOT_FOUND` (github.com/temporalio/api/pull/267). So a caller that asks just after the
operation has ended meets a new history now and then. The first event of each history names the one before it. The
server says all this itself: a worker may be lost, or of an earlier version, or know only the newest answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowUpdateHandle
from temporalio.service import RPCError, RPCStatusCode

MOST_FORMER = 8
"""How many histories are looked at: those of about a thousand operations."""

_ResultT = TypeVar("_ResultT")


async def read_former(
    client: Client, workflow: str, update: str, read: Callable[[WorkflowUpdateHandle[Any]], Awaitable[_ResultT]]
) -> _ResultT | None:
    """What `read` makes of an update that an earlier history accepted; None: none that the server still has did. It
    may be repeated. `workflow`, `update`: their ids. Raises: `RPCError`; what `read` raises.
    """
    async for run in _list_former(client, workflow):
        handle = client.get_workflow_handle(workflow, run_id=run).get_update_handle(update)
        try:
            return await read(handle)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    return None


async def _list_former(client: Client, workflow: str) -> AsyncIterator[str]:
    """The runs before the present one, newest first."""
    run = None
    for _ in range(MOST_FORMER):
        run = await _find_run_before(client, workflow, run)
        if not run:
            return
        yield run


async def _find_run_before(client: Client, workflow: str, run: str | None) -> str:
    """`run`: None: the present one. Empty: there was none before it, or the server has removed it."""
    events = client.get_workflow_handle(workflow, run_id=run).fetch_history_events(page_size=1)
    try:
        first = await anext(events)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return ""
    return first.workflow_execution_started_event_attributes.continued_execution_run_id
