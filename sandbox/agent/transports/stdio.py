"""Serve one client over standard input and output, one JSON-RPC message a line.

A line that is no message is answered (JSON-RPC 2.0, section 5): the SDK's own transport drops it, and whoever sent it
waits. The answer has no id, as none could be read, so it can be mistaken for no other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.agent.transports.pending import Owed
from sandbox.agent.transports.shutdown import ended_by_signals
from sandbox.agent.transports.stdio_transport import MAX_LINE_BYTES, Wire, standard_wire

_NO_JSON = types.ErrorData(code=types.PARSE_ERROR, message=f"No JSON, or more than {MAX_LINE_BYTES} bytes")
_NO_MESSAGE = types.ErrorData(code=types.INVALID_REQUEST, message="No JSON-RPC message")

ANSWERS_S = 30.0
"""How long what was asked may take after the client has closed its end."""

LAST_WORDS_S = 5.0
"""How long a client that has closed its end may take to read what is left."""


def serve_stdio(agent: Agent) -> None:
    """Until the client closed its end and has its answers, or a signal ends it."""
    with standard_wire() as wire:
        anyio.run(_serve_until_told, agent, wire)


async def _serve_until_told(agent: Agent, wire: Wire) -> None:
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()
    with ended_by_signals(_from_signal(loop, scope.cancel)), scope:
        await serve(agent, wire)


async def _end_network_when_cancelled(agent: Agent) -> None:
    """A call over the network, which no cancellation reaches, would otherwise be waited for."""
    try:
        await anyio.sleep_forever()
    finally:
        agent.workbench.end_network()


def _from_signal(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)  # also wakes the loop

    return handle


async def serve(agent: Agent, wire: Wire) -> None:
    """One session."""
    server = make_server(agent)
    arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        written, owed = anyio.Event(), Owed()
        group.start_soon(_end_network_when_cancelled, agent)
        group.start_soon(_end_when_unheard, wire, group.cancel_scope)
        group.start_soon(_receive, wire, arrived, outgoing.clone(), owed, agent.workbench.end_network)
        group.start_soon(_send, wire, leaving, owed, group.cancel_scope, written)
        await server.run(incoming, outgoing, server.create_initialization_options())
        with anyio.move_on_after(LAST_WORDS_S):
            await written.wait()
        group.cancel_scope.cancel()


async def _end_when_unheard(wire: Wire, scope: anyio.CancelScope) -> None:
    """A client that died has closed both ends, and no check of its own need go on until its answer is due."""
    await wire.unheard()
    scope.cancel()


async def _receive(
    wire: Wire,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    answers: MemoryObjectSendStream[SessionMessage],
    owed: Owed,
    give_up: Callable[[], None],
) -> None:
    """Whoever pipes requests into us closes right after the last one: the SDK drops what has no answer by then."""
    async with into, answers:
        with suppress(OSError):  # a client that died with answers unread: nobody is owed anything
            async for line in wire.lines():
                found = _parsed(line) if line.strip() else None
                if isinstance(found, types.ErrorData):
                    await answers.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=found)))
                elif found is not None:
                    owed.received(found)
                    await into.send(SessionMessage(found))
            with anyio.move_on_after(ANSWERS_S) as waited:
                await owed.nothing()
            if waited.cancelled_caught:
                give_up()


def _parsed(line: bytes) -> types.JSONRPCMessage | types.ErrorData:
    if len(line) > MAX_LINE_BYTES:  # what is left of it may be JSON by chance
        return _NO_JSON
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return _NO_JSON if any(e["type"] == "json_invalid" for e in error.errors()) else _NO_MESSAGE
    return _NO_MESSAGE if isinstance(message, types.JSONRPCNotification) and _has_id(line) else message


def _has_id(line: bytes) -> bool:
    """A request with an id that none can have, such as null, passes for a notification."""
    return "id" in json.loads(line)


async def _send(
    wire: Wire,
    messages: MemoryObjectReceiveStream[SessionMessage],
    owed: Owed,
    scope: anyio.CancelScope,
    written: anyio.Event,
) -> None:
    async with messages:
        try:
            async for sent in messages:
                await wire.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                owed.sent(sent.message)
        except OSError:  # nobody reads any more: whatever is left to do, nobody hears of it
            scope.cancel()
    written.set()
