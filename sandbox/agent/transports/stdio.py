"""Serve one client over standard input and output, one JSON-RPC message a line.

A line that is not a message gets an error (JSON-RPC 2.0, section 5). The SDK's own transport drops it, so its sender
would wait for ever. The error has the id of a request if that can be read; else it has none, so that it cannot be taken
for another answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.agent.transports.long_lines import find_request_id
from sandbox.agent.transports.pending import PendingRequests
from sandbox.agent.transports.shutdown import handle_signals
from sandbox.agent.transports.stdio_transport import MAX_LINE_BYTES, StdioTransport, open_standard_streams

_NOT_JSON = types.ErrorData(code=types.PARSE_ERROR, message="Not JSON in UTF-8 without a BOM")
_TOO_LONG = types.ErrorData(code=types.PARSE_ERROR, message=f"The line has more than {MAX_LINE_BYTES} bytes")
_NOT_A_MESSAGE = types.ErrorData(code=types.INVALID_REQUEST, message="Not a JSON-RPC message")
_NO_TABLE = types.ErrorData(code=types.INVALID_PARAMS, message="params has to be an object")
_HALF_CHARACTER = types.ErrorData(
    code=types.INVALID_PARAMS,
    message="A string has half of a character (a lone surrogate), as of an emoji that was cut",
)
_TOO_DEEP = types.ErrorData(code=types.INVALID_PARAMS, message="The values are nested too deep")

ANSWERS_S = 30.0
"""How long pending requests may take after the client has closed its end."""

DRAIN_TIMEOUT_S = 5.0
"""How long a client that has closed its end may take to read the remaining answers."""


def serve_stdio(agent: Agent) -> None:
    """Serve until the client has closed its end and has its answers, or until a signal."""
    with open_standard_streams() as wire:
        anyio.run(_serve_until_signal, agent, wire)


async def _serve_until_signal(agent: Agent, wire: StdioTransport) -> None:
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()
    with handle_signals(_signal_handler(loop, scope.cancel)), scope:
        await serve(agent, wire)


async def _abort_network_on_cancel(agent: Agent) -> None:
    """Abort network calls: cancellation does not reach them, so the shutdown would wait for them."""
    try:
        await anyio.sleep_forever()
    finally:
        agent.workbench.end_network()


def _signal_handler(
    loop: asyncio.AbstractEventLoop, act: Callable[[], None]
) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)  # also wakes the loop

    return handle


async def serve(agent: Agent, wire: StdioTransport) -> None:
    """Serve one session."""
    server = make_server(agent)
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        written, pending = anyio.Event(), PendingRequests()
        group.start_soon(_abort_network_on_cancel, agent)
        group.start_soon(_cancel_when_disconnected, wire, group.cancel_scope)
        group.start_soon(_receive, wire, arrived, outgoing.clone(), pending, agent.workbench.end_network)
        group.start_soon(_send, wire, leaving, pending, group.cancel_scope, written)
        await server.run(incoming, outgoing, server.create_initialization_options())
        with anyio.move_on_after(DRAIN_TIMEOUT_S):
            await written.wait()
        group.cancel_scope.cancel()


async def _cancel_when_disconnected(wire: StdioTransport, scope: anyio.CancelScope) -> None:
    """Cancel the session of a client that died (both ends are closed), also while a check runs for it."""
    await wire.wait_until_disconnected()
    scope.cancel()


async def _receive(
    wire: StdioTransport,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    answers: MemoryObjectSendStream[SessionMessage],
    pending: PendingRequests,
    abort_network: Callable[[], None],
) -> None:
    """Read messages, then wait for pending answers: a client that pipes its requests closes right after the last one.

    The SDK drops requests that have no answer by then.
    """
    async with into, answers:
        with suppress(OSError):  # the client died with answers unread: no request is pending
            async for line in wire.lines():
                message = _parse_line(line) if line.strip() else None
                if isinstance(message, _UnusableLine):
                    await answers.send(SessionMessage(message.answer))
                elif message is not None:
                    pending.note_incoming(message)
                    await into.send(SessionMessage(message))
            with anyio.move_on_after(ANSWERS_S) as waited:
                await pending.wait_until_done()
            if waited.cancelled_caught:
                abort_network()


@dataclass(frozen=True)
class _UnusableLine:
    """A line that is no message, and its answer."""

    answer: types.JSONRPCError


def _parse_line(line: bytes) -> types.JSONRPCMessage | _UnusableLine:
    if len(line) > MAX_LINE_BYTES:  # what was kept of it may be valid JSON
        return _refuse(_TOO_LONG, find_request_id(line))
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        is_json = all(each["type"] != "json_invalid" for each in error.errors())
        return _refuse_line(line, _NOT_A_MESSAGE if is_json else _NOT_JSON)
    if isinstance(message, types.JSONRPCNotification) and "id" in json.loads(line):
        return _refuse(_NOT_A_MESSAGE)  # a request with an invalid id, such as null, is parsed as a notification
    return message


def _refuse(why: types.ErrorData, number: types.RequestId | None = None) -> _UnusableLine:
    return _UnusableLine(types.JSONRPCError(jsonrpc="2.0", id=number, error=why))


def _refuse_line(line: bytes, why: types.ErrorData) -> _UnusableLine:
    """Read the line again, by a parser that takes halves of characters, for the id of its request. An answer to a
    question of ours has our id: an error with it would be for another request of the client.
    """
    try:
        document = json.loads(line)
        number, is_request = document["id"], isinstance(document["method"], str)
        if not is_request or not isinstance(number, (int, str)) or isinstance(number, bool):
            return _refuse(why)
        json.dumps(number, ensure_ascii=False).encode()
        return _refuse(_explain(line, document, why), number)
    except (ValueError, LookupError, TypeError, RecursionError):
        return _refuse(why)


def _explain(line: bytes, document: Mapping[str, object], why: types.ErrorData) -> types.ErrorData:
    """The parser that read the line again also reads UTF-16, UTF-32 and a BOM, which JSON-RPC has not."""
    if json.detect_encoding(line) != "utf-8":
        return _NOT_JSON
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _HALF_CHARACTER
    if why is _NOT_JSON:
        return _TOO_DEEP
    return why if isinstance(document.get("params", {}), dict) else _NO_TABLE


async def _send(
    wire: StdioTransport,
    messages: MemoryObjectReceiveStream[SessionMessage],
    pending: PendingRequests,
    scope: anyio.CancelScope,
    written: anyio.Event,
) -> None:
    async with messages:
        try:
            async for sent in messages:
                await wire.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                pending.note_outgoing(sent.message)
        except OSError:  # the client no longer reads: no answer can reach it
            scope.cancel()
    written.set()
