"""The JSON API: each tool of the MCP server as one path, with the same models, policy, approvals and journal.

`POST /api/v1/NAME` takes the tool's arguments as a JSON object and answers with its result, or with the typed error of
all surfaces. A call that a person has to approve fails with `approval_required`; after `sandbox approvals approve ID`
the same call succeeds. `GET /api/v1/openapi.json` describes all paths.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.agent.agent import MAX_BODY_BYTES, Agent
from sandbox.agent.permission import permit_out_of_band, permit_without_asking
from sandbox.agent.run_results import build_answer
from sandbox.agent.shown_results import show_error, show_result, take_losses
from sandbox.agent.tool_arguments import (
    complete_ids,
    request_tool_approval,
    validate_arguments,
)
from sandbox.agent.tools import REQUEST_APPROVAL, TOOLS, Tool, ToolCall
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import BackgroundRun
from sandbox.store.records import not_found_error
from sandbox.version import __version__
from sandbox.workbench import Watch

PREFIX = "/api/v1"
_CLIENT_CHARS = 100
_NAME_CHARS = 100
_SCHEMA_HINT = f"GET {PREFIX}/openapi.json describes all tools and their arguments."
_JSON = "application/json"
_NOT_JSON = f"The body has to be JSON, with the header `Content-Type: {_JSON}`.\n"
LOST = "lost"
"""A field beside those of a result or an error: what the call's task lost when its worker on a cluster was lost."""

_STATUS = {
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.UNSAFE_PATH: 400,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.APPROVAL_REQUIRED: 403,
    ErrorCode.APPROVAL_DENIED: 403,
    ErrorCode.GATE_CLOSED: 403,
    ErrorCode.POLICY_VIOLATION: 403,
    ErrorCode.UNSAFE_REPOSITORY: 403,
    ErrorCode.QUOTA_EXCEEDED: 429,
    ErrorCode.CONFLICT: 409,
    ErrorCode.STALE_HASH: 409,
    ErrorCode.DIRTY_WORKSPACE: 409,
    ErrorCode.PATCH_REJECTED: 409,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.ENGINE_UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}
_OTHER_STATUS = 422
_LOST_SCHEMA = {
    "type": "array",
    "items": {"type": "string"},
    "description": "What the task lost when its worker on a cluster was lost; said once, also beside an error.",
}
_log = logging.getLogger(__name__)


def make_api_routes(agent: Agent) -> list[Route]:
    """A route for each tool, and their description."""
    return [
        Route(f"{PREFIX}/openapi.json", lambda _request: JSONResponse(describe_api())),
        *(Route(f"{PREFIX}/{tool.name}", partial(_answer, agent, tool), methods=["POST"]) for tool in TOOLS.values()),
        Route(f"{PREFIX}/{{name}}", partial(_refuse_name, agent), methods=["POST"]),
    ]


def refuse_without(agent: Agent, *tools: str) -> Response | None:
    """The error for a path that shows what these tools show, to a caller that may not call one of them without a
    question; None if it may. The answer does not change in the life of a controller (see `protocol_permission`), so
    streams ask once.
    """
    try:
        for name in tools:
            permit_without_asking(agent, TOOLS[name])
    except SandboxError as error:
        return _show_error(agent, error)
    return None


async def _refuse_name(agent: Agent, request: Request) -> Response:
    """The answer to a call of a tool that does not exist."""
    error = not_found_error("tool", request.path_params["name"][:_NAME_CHARS], TOOLS, _SCHEMA_HINT)
    return _show_error(agent, error)


async def _answer(agent: Agent, tool: Tool, request: Request) -> Response:
    threads = agent.check_threads if tool.waits else agent.network_threads if tool.open_world else agent.threads
    if not _is_declared_json(request):
        return Response(_NOT_JSON, 415, media_type="text/plain")
    body = await read_body(request)
    if body is None:
        return Response("The body is too large.\n", 413, media_type="text/plain")
    client = request.headers.get("user-agent", "")[:_CLIENT_CHARS]
    return await anyio.to_thread.run_sync(partial(_call, agent, tool, body, client), limiter=threads)


def _is_declared_json(request: Request) -> bool:
    """Whether the body is declared as JSON, or there is none. A page of another site can send other kinds without a
    question to this server (a simple request of CORS).
    """
    kinds = request.headers.getlist("content-type")
    if kinds:
        return [kind.partition(";")[0].strip().lower() for kind in kinds] == [_JSON]
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes | None:
    """The body of a request; None if it is longer."""
    parts, left = [], limit_bytes
    async for chunk in request.stream():
        left -= len(chunk)
        if left < 0:
            return None
        parts.append(chunk)
    return b"".join(parts)


def _call(agent: Agent, tool: Tool, body: bytes, client: str) -> Response:
    """In a thread: one call, from its JSON to its result or error, with what its task lost with a worker."""
    try:
        given = complete_ids(agent.workbench, tool, _parse(body))
    except SandboxError as error:
        return _show_error(agent, error)
    try:
        document, status = _carry_out(agent, tool, given, client), HTTPStatus.OK.value
    except SandboxError as error:
        document, status = _describe_error(agent, error)
    losses = take_losses(agent.workbench, given)
    return JSONResponse({**document, LOST: losses} if losses else document, status)


def _carry_out(agent: Agent, tool: Tool, given: dict[str, Any], client: str) -> dict[str, Any]:
    try:
        arguments = validate_arguments(tool, given, _SCHEMA_HINT)
        caller = agent.workbench.caller.model_copy(update={"client": client, "transport": "http"})
        return show_result(tool, _run(agent, tool, arguments, caller), agent.budget_bytes).document
    except SandboxError:
        raise
    except Exception as error:
        _log.exception("the tool %s failed", tool.name)
        raise SandboxError(ErrorCode.INTERNAL, f"{tool.name} failed; this is a defect") from error


def _describe_error(agent: Agent, error: SandboxError) -> tuple[dict[str, Any], int]:
    return json.loads(show_error(error, agent.home, agent.budget_bytes)), _STATUS.get(error.code, _OTHER_STATUS)


def _show_error(agent: Agent, error: SandboxError) -> Response:
    return JSONResponse(*_describe_error(agent, error))


def _run(agent: Agent, tool: Tool, arguments: Any, caller: Any) -> BaseModel:
    if tool.name == REQUEST_APPROVAL:
        return request_tool_approval(agent, arguments)
    allowed = permit_out_of_band(agent, tool, arguments)
    if allowed.answer is not None:
        return allowed.answer
    workbench = agent.workbench.acting(caller, allowed.permission)
    result = tool.call(ToolCall(workbench, arguments, Watch(), allowed.state))
    return build_answer(result, tool.result_model) if isinstance(result, BackgroundRun) else result


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}", object_pairs_hook=_require_unique)
    except (ValueError, RecursionError) as error:
        brief = "The body is not JSON, or has a name twice"
        raise SandboxError(ErrorCode.INVALID_INPUT, brief, details=str(error)[:200], hint=_SCHEMA_HINT) from error
    if not isinstance(document, dict):
        raise SandboxError(ErrorCode.INVALID_INPUT, "The body is not a JSON object", hint=_SCHEMA_HINT)
    return document


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers, such as a program that filters calls and this one, could take such an object differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def describe_api() -> dict[str, Any]:
    """The OpenAPI document, made from the tools' models."""
    shapes: dict[str, Any] = {}
    paths = {f"{PREFIX}/{tool.name}": {"post": _describe_call(tool, shapes)} for tool in TOOLS.values()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Space Sandbox",
            "version": __version__,
            "description": "The tools of `sandbox mcp` as JSON.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": shapes, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _describe_call(tool: Tool, shapes: dict[str, Any]) -> dict[str, Any]:
    result = _content(tool.result_model, "serialization", shapes)
    if {"task_id", "run_id"} & set(tool.input_model.model_fields):
        result[_JSON]["schema"]["properties"][LOST] = _LOST_SCHEMA
    return {
        "operationId": tool.name,
        "tags": [tool.preset.value],
        "summary": tool.description,
        "requestBody": {"required": True, "content": _content(tool.input_model, "validation", shapes)},
        "responses": {
            "200": {"description": "The result.", "content": result},
            "default": {"description": 'A typed error: `{"error": {code, brief, details, hint}}`.'},
        },
    }


def _content(model: type[BaseModel], mode: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(mode=mode, ref_template="#/components/schemas/{model}")
    shapes |= schema.pop("$defs", {})
    return {_JSON: {"schema": schema}}
