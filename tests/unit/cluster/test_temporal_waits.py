"""How long a caller waits for workers through a Temporal server that ends requests early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster import server_requests
from sandbox.cluster.server_requests import ServerRequests


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "_PAUSE_S", 0.0)


def server_that_says(*errors: Exception) -> Callable[[], Awaitable[str]]:
    """It fails in these ways, then answers."""
    left = list(errors)

    async def request() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return request


def failure(status: RPCStatusCode) -> RPCError:
    return RPCError("context canceled", status, b"")


@pytest.mark.parametrize(
    "error",
    [
        failure(RPCStatusCode.CANCELLED),
        failure(RPCStatusCode.DEADLINE_EXCEEDED),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
    ],
)
def test_a_request_that_the_server_ended_early_is_made_again(error: Exception) -> None:
    """As it does when the worker was killed to which it gave the request."""
    assert asyncio.run(ServerRequests().ask(server_that_says(error, error), 60.0)) == "answer"


def test_another_failure_is_not_repeated() -> None:
    with pytest.raises(RPCError, match="context canceled"):
        asyncio.run(ServerRequests().ask(server_that_says(failure(RPCStatusCode.INVALID_ARGUMENT)), 60.0))


def test_a_server_that_is_away_is_asked_again_until_that_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time goes on over several questions, and begins anew with an answer."""
    requests, away = ServerRequests(), failure(RPCStatusCode.UNAVAILABLE)
    assert asyncio.run(requests.ask(server_that_says(away, away), 60.0)) == "answer"
    with pytest.raises(TimeoutError):
        asyncio.run(requests.ask(server_that_says(*[away] * 100_000), 0.05))
    assert requests.is_away
    monkeypatch.setattr(server_requests, "SERVER_S", 0.0)
    with pytest.raises(RPCError):
        asyncio.run(requests.ask(server_that_says(away), 60.0))
    assert asyncio.run(requests.ask(server_that_says(), 60.0)) == "answer"
    assert not requests.is_away


def test_the_time_of_a_caller_has_an_end_also_when_each_request_is_ended_early() -> None:
    async def request() -> str:
        raise failure(RPCStatusCode.CANCELLED)

    with pytest.raises(TimeoutError):
        asyncio.run(ServerRequests().ask(request, 0.2))


def test_a_request_without_an_end_is_ended_by_our_own_limit() -> None:
    """The client makes the cancellation of an update an error of its own, which is not taken for one of the server."""

    async def request() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from error
        return "never"

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(ServerRequests().ask(request, 0.1))
    assert time.monotonic() - began < 30
