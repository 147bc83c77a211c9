"""The histories of a task before its present one (Temporal: the earlier runs of its workflow).

Theory. A long history is replaced by a new one (`sandbox.cluster.task_workflow`). The answer of an operation stays at
the server, but with the history that accepted the operation: asked without the id of a run, the server looks into the
present one only, and says `NOT_FOUND` (github.com/temporalio/api/pull/267). So a caller that asks just after the
operation has ended meets a new history now and then. Sent again, an operation would be carried out again there. The
first event of each history names the one before it. The server says all this itself: a worker may be lost, or of an
earlier version, or know only the newest answers.

An operation that came while a history ended is aborted there, not accepted. As long as the server has that history in
its memory, for minutes, it says `RESOURCE_EXHAUSTED` to each question about the operation (abort_reason.go in
github.com/temporalio/temporal). It says the same when it is only busy, so the events of that history decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowUpdateHandle
from temporalio.service import RPCError, RPCStatusCode

MOST_FORMER = 8
"""How many histories are looked at: those of about a thousand operations."""

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class FormerLook(Generic[_ResultT]):
    """What a look through the earlier histories of a task found. `value`: None: none of them has accepted the update.
    `present`: the run id of the history that was the present one when the look began. `is_complete`: the look went
    back to the first history, so an update without a value was accepted by none.
    """

    value: _ResultT | None
    present: str
    is_complete: bool


async def read_former(
    client: Client, workflow: str, update: str, read: Callable[[WorkflowUpdateHandle[Any]], Awaitable[_ResultT]]
) -> FormerLook[_ResultT]:
    """Call `read` with the update in each earlier history, newest first, until one has it. `workflow`, `update`: their
    ids. The request may be repeated. Raises: `RPCError`, `NOT_FOUND` if there is no such workflow; what `read` raises.
    """
    described = await client.get_workflow_handle(workflow).describe()
    info = described.raw_description.workflow_execution_info
    present = run = info.execution.run_id
    if present == info.first_run_id:
        return FormerLook(None, present, is_complete=True)
    for _ in range(MOST_FORMER):
        before = await _find_run_before(client, workflow, run)
        if not before:
            return FormerLook(None, present, is_complete=before is not None)
        run = before
        handle = client.get_workflow_handle(workflow, run_id=run).get_update_handle(update)
        try:
            return FormerLook(await read(handle), present, is_complete=True)
        except RPCError as error:
            if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
                if await _has_accepted(client, workflow, run, update):
                    raise
            elif error.status is not RPCStatusCode.NOT_FOUND:
                raise
    return FormerLook(None, present, is_complete=False)


async def _has_accepted(client: Client, workflow: str, run: str, update: str) -> bool:
    """Whether a history has accepted an update, as its events say; they may have megabytes. Raises: `RPCError`."""
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    async for event in client.get_workflow_handle(workflow, run_id=run).fetch_history_events():
        facts = event.workflow_execution_update_accepted_event_attributes
        if event.event_type == accepted and facts.accepted_request.meta.update_id == update:
            return True
    return False


async def _find_run_before(client: Client, workflow: str, run: str) -> str | None:
    """Empty: `run` is the first history. None: the server has removed its events."""
    events = client.get_workflow_handle(workflow, run_id=run).fetch_history_events(page_size=1)
    try:
        first = await anext(events)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return first.workflow_execution_started_event_attributes.continued_execution_run_id
