"""Check runs as protocol tasks, for clients that know the extension `io.modelcontextprotocol/tasks`.

Such a client gets a handle instead of the answer `running`, polls it, and gives the result to its model (SEP-2663,
specification/draft/tasks.md of modelcontextprotocol/ext-tasks). The task id is the run id, so other sessions and
`sandbox check wait` can address the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import BackgroundRun
from sandbox.text import one_line
from sandbox.workbench import Workbench

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 2000

BuildResult = Callable[[BackgroundRun], types.CallToolResult]
"""Builds the result of the tool that started a run, from the run once it has ended."""


class TaskParams(types.RequestParams):
    """`tasks/get`, `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """`tasks/update`: we never ask for input, so no response is expected."""

    input_responses: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field: each model has its own


def accepts_tasks(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client declared the extension on this request."""
    capabilities = context.session.client_capabilities
    return bool(capabilities and capabilities.extensions and EXTENSION in capabilities.extensions)


def make_handle(run: BackgroundRun) -> dict[str, Any]:
    """The answer to a tool call while its run continues."""
    return {"resultType": "task", **_describe(run), "status": "working"}


def get_task(
    workbench: Workbench, run_id: str, answer: BuildResult, failure: Callable[[SandboxError], Any]
) -> dict[str, Any]:
    """The state of a run, with the result of its tool once it has ended. Raises: `MCPError` for an unknown run."""
    try:
        run = workbench.wait_run(run_id, 0)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise MCPError(types.INVALID_PARAMS, one_line(error.brief)) from error
        return {**_task_fields(run_id, datetime.now(UTC), 0.0), "status": "completed", "result": _dump(failure(error))}
    if run.state == "running":
        return {**_describe(run), "status": "working"}
    return {**_describe(run), "status": "completed", "result": _dump(answer(run))}


def cancel_task(workbench: Workbench, run_id: str) -> dict[str, Any]:
    """Stop a run. Raises: `MCPError` for an unknown run, or one that still runs."""
    try:
        workbench.stop_run(run_id)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise MCPError(types.INVALID_PARAMS, one_line(error.brief)) from error
        if _still_runs(workbench, run_id):
            raise MCPError(types.INTERNAL_ERROR, one_line(f"{error.code.value}: {error.brief}")) from error
    return {}


def _still_runs(workbench: Workbench, run_id: str) -> bool:
    try:
        return workbench.wait_run(run_id, 0).state == "running"
    except SandboxError:  # the error that ended the run
        return False


def _describe(run: BackgroundRun) -> dict[str, Any]:
    what = run.check_id or run.operation
    queue = f", number {run.queue_position} in the queue" if run.queue_position else ""
    return {
        **_task_fields(run.run_id, run.started_at, run.elapsed_s),
        "statusMessage": f"{what}: {run.elapsed_s:.0f} s{queue}",
    }


def _task_fields(run_id: str, started_at: datetime, elapsed_s: float) -> dict[str, Any]:
    updated_at = started_at + timedelta(seconds=elapsed_s)
    return {
        "taskId": run_id,
        "createdAt": started_at.isoformat(),
        "lastUpdatedAt": updated_at.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _dump(result: BaseModel) -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
