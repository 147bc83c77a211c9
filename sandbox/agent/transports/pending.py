"""What one client still waits for: requests that will be answered without another word from it."""

from __future__ import annotations

import anyio
import mcp_types as types

_ENDLESS = "subscriptions/listen"


class Owed:
    """Sees each message of a session, in either direction.

    Nothing is owed to a request that was cancelled or that listens; nor, once the client says nothing more, to one that
    waits for what we ask in turn.
    """

    def __init__(self) -> None:
        self._requests: list[str] = []  # ids; who sends one twice gets two answers
        self._questions: set[str] = set()
        self._change = anyio.Event()

    def received(self, message: types.JSONRPCMessage) -> None:
        """From the client."""
        match message:
            case types.JSONRPCRequest() if message.method != _ENDLESS:
                self._requests.append(str(message.id))
            case types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": cancelled}):
                self._settle(str(cancelled))
            case types.JSONRPCResponse() | types.JSONRPCError():
                self._questions.discard(str(message.id))

    def sent(self, message: types.JSONRPCMessage) -> None:
        """To the client, all of it."""
        match message:
            case types.JSONRPCRequest():
                self._questions.add(str(message.id))
                self._changed()
            case types.JSONRPCResponse() | types.JSONRPCError():
                self._settle(str(message.id))

    async def nothing(self) -> None:
        """Wait until no request is left but those that wait for the client, one for each question."""
        while len(self._requests) > len(self._questions):
            await self._change.wait()

    def _settle(self, request: str) -> None:
        if request in self._requests:
            self._requests.remove(request)
            self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = anyio.Event()
