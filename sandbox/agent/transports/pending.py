"""The requests of one client that are still to be answered and need no further message from it."""

from __future__ import annotations

import anyio
import mcp_types as types

from sandbox.agent.transports.method_names import ENDLESS


class PendingRequests:
    """Sees each message of a session, in either direction.

    Cancelled requests and subscriptions need no answer. Once the client has closed its end, a request that waits for
    the client's answer to a question of ours is not pending either.
    """

    def __init__(self) -> None:
        self._requests: list[str] = []  # ids; an id that was sent twice gets two answers
        self._questions: set[str] = set()
        self._change = anyio.Event()

    def note_incoming(self, message: types.JSONRPCMessage) -> None:
        """Note a message from the client."""
        match message:
            case types.JSONRPCRequest() if message.method != ENDLESS:
                self._requests.append(str(message.id))
            case types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": cancelled}):
                self._settle(str(cancelled))
            case types.JSONRPCResponse() | types.JSONRPCError():
                self._questions.discard(str(message.id))

    def note_outgoing(self, message: types.JSONRPCMessage) -> None:
        """Note a message that was written to the client completely."""
        match message:
            case types.JSONRPCRequest():
                self._questions.add(str(message.id))
                self._signal_change()
            case types.JSONRPCResponse() | types.JSONRPCError():
                self._settle(str(message.id))

    async def wait_until_done(self) -> None:
        """Wait until the only requests left are those that wait for the client, one for each question."""
        while len(self._requests) > len(self._questions):
            await self._change.wait()

    def _settle(self, request: str) -> None:
        if request in self._requests:
            self._requests.remove(request)
            self._signal_change()

    def _signal_change(self) -> None:
        self._change.set()
        self._change = anyio.Event()
