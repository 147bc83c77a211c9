"""How a worker gets the identity that tells two processes of one id apart, of a server that is slow or refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.service import RPCError, RPCStatusCode

from sandbox.cluster import worker_directory
from sandbox.cluster.worker_directory import find_rival, name_reader
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused

WORKER = f"worker-{'1' * 16}"
REFUSAL = RPCError("no such namespace", RPCStatusCode.NOT_FOUND, b"")


class Service:
    """That of a server. `list_readers`: of any queue, given the identity under which one was read."""

    def __init__(self, list_readers: Callable[[str], list[PollerInfo]], refusal: RPCError | None = None) -> None:
        self._list_readers, self._refusal = list_readers, refusal
        self._reader = ""

    async def poll_activity_task_queue(self, request: Any) -> None:
        self._reader = request.identity
        if self._refusal is not None:
            raise self._refusal
        await asyncio.sleep(60)

    async def describe_task_queue(self, _request: Any) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse(pollers=self._list_readers(self._reader))


def client_of(service: Service) -> Any:
    address = SimpleNamespace(config=SimpleNamespace(target_host="temporal.example.org:7233"))
    return SimpleNamespace(namespace="default", workflow_service=service, service_client=address)


def name(service: Service, limit_s: float = 60.0) -> str:
    return asyncio.run(name_reader(client_of(service), "queue", WORKER, limit_s))


def read_by(identity: str, at_s: int = 1) -> PollerInfo:
    found = PollerInfo(identity=identity)
    found.last_access_time.FromSeconds(at_s)
    return found


def test_a_worker_that_the_server_does_not_list_in_time_works_and_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: one that is listed has the time of the server, and does not give way to it."""
    monkeypatch.setattr(worker_directory, "_LOOK_AGAIN_S", 0.0)
    unlisted, listed = name(Service(lambda _: []), 0.05), name(Service(lambda reader: [read_by(reader)]))
    assert unlisted.startswith(f"{WORKER}@{'9' * 20}-")
    assert listed.startswith(f"{WORKER}@{10**9:020d}-")

    async def look(own: str, other: str) -> None:
        times = iter(range(1, 1_000_000))
        rivals = Service(lambda _: [read_by(own), read_by(other, next(times))])
        await asyncio.wait_for(find_rival(client_of(rivals), "queue", own), 0.2)

    asyncio.run(look(unlisted, listed))
    with pytest.raises(TimeoutError):
        asyncio.run(look(listed, unlisted))


def test_of_two_workers_that_began_at_the_same_time_one_is_the_earlier_one() -> None:
    starts = {worker_directory._find_start(name(Service(lambda _: []), 0.01)) for _ in range(2)}
    assert len(starts) == 2


def test_what_the_server_refuses_to_a_worker_is_said_at_once() -> None:
    with refused(ErrorCode.NETWORK_ERROR) as error:
        name(Service(lambda _: [], REFUSAL))
    assert (error.value.details, WORKER in error.value.brief) == ("no such namespace", True)
    assert "cluster.namespace" in error.value.hint


def test_a_server_that_does_not_answer_a_worker_is_an_error() -> None:
    def fail(_: str) -> list[PollerInfo]:
        raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")

    with refused(ErrorCode.NETWORK_ERROR):
        name(Service(fail), 0.05)
