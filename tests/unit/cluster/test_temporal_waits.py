"""How long a caller waits for workers through a Temporal server that ends requests early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster import server_requests
from sandbox.cluster.server_requests import ServerRequests, make_server_error
from sandbox.errors import ErrorCode


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


class Clock:
    """In the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(server_requests, "time", made)
    return made


@pytest.mark.parametrize(
    "error",
    [
        failure(RPCStatusCode.CANCELLED),
        failure(RPCStatusCode.DEADLINE_EXCEEDED),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
        failure(RPCStatusCode.RESOURCE_EXHAUSTED),
        failure(RPCStatusCode.ABORTED),
    ],
)
def test_a_request_that_the_server_ended_early_or_has_no_room_for_is_made_again(error: Exception) -> None:
    """It ends one early when the worker was killed to which it gave the request."""
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


@pytest.mark.parametrize("said", [RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.RESOURCE_EXHAUSTED])
def test_a_server_that_refuses_a_request_is_there(said: RPCStatusCode) -> None:
    """Control: it was away before."""
    requests, seen = ServerRequests(), list[bool]()

    async def request() -> None:
        seen.append(requests.is_away)
        statuses = (RPCStatusCode.UNAVAILABLE, said, RPCStatusCode.NOT_FOUND)
        raise failure(statuses[len(seen) - 1])

    with pytest.raises(RPCError):
        asyncio.run(requests.ask(request, 60.0))
    assert seen == [False, True, False][: len(seen)]
    assert not requests.is_away


def test_each_of_several_callers_gives_up_a_minute_after_the_server_went_away(clock: Clock) -> None:
    requests = ServerRequests()

    async def request() -> None:
        clock.now += 1.0
        raise failure(RPCStatusCode.UNAVAILABLE)

    async def ask_together() -> None:
        asked = (requests.ask(request, 60.0) for _ in range(3))
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in ended] == [RPCError] * 3

    began = clock.now
    asyncio.run(ask_together())
    assert 60.0 <= clock.now - began < 70.0
    with pytest.raises(RPCError):
        asyncio.run(requests.ask(request, 60.0))
    assert clock.now - began >= 120.0, "a later one has as long"


def test_a_server_that_goes_away_for_a_moment_again_and_again_is_not_lost(clock: Clock) -> None:
    """Between two failures the request waits, and nothing is answered. Control: so long without a wait is too long."""
    requests, left = ServerRequests(), 5

    async def request() -> str:
        nonlocal left
        left -= 1
        clock.now += 50.0
        if left:
            raise failure(RPCStatusCode.UNAVAILABLE)
        return "answer"

    assert asyncio.run(requests.ask(request, 60.0)) == "answer"
    with pytest.raises(RPCError):
        asyncio.run(requests.ask(in_vain(clock, 20.0), 60.0))


def in_vain(clock: Clock, each_s: float) -> Callable[[], Awaitable[str]]:
    """Requests that find no server, which takes so long each."""

    async def request() -> str:
        clock.now += each_s
        raise failure(RPCStatusCode.UNAVAILABLE)

    return request


def test_a_caller_that_asks_often_for_a_moment_each_gives_up_too(clock: Clock) -> None:
    requests = ServerRequests()

    async def ask_for_a_moment() -> None:
        is_first = True

        async def request() -> None:
            nonlocal is_first
            if not is_first:
                await asyncio.sleep(60)
            is_first = False
            clock.now += 25.0
            raise failure(RPCStatusCode.UNAVAILABLE)

        await requests.ask(request, 0.01)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            asyncio.run(ask_for_a_moment())
    with pytest.raises(RPCError):
        asyncio.run(ask_for_a_moment())


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


def test_a_namespace_that_the_server_does_not_have_is_no_unknown_task() -> None:
    """Control: what else it does not find."""
    status = GrpcStatus(code=RPCStatusCode.NOT_FOUND)
    status.details.add().Pack(NamespaceNotFoundFailure(namespace="teem"))
    missing = RPCError("Namespace teem is not found.", RPCStatusCode.NOT_FOUND, status.SerializeToString())
    found = make_server_error("host:7233", missing, None)
    assert found.code is ErrorCode.INVALID_INPUT
    assert "teem" in found.brief
    assert "cluster.namespace" in found.hint
    assert make_server_error("host:7233", failure(RPCStatusCode.NOT_FOUND), None).code is ErrorCode.NOT_FOUND
