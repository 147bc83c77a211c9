"""Two processes with the id of one worker, as after a home was copied. The server and the queues are real."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from devtools.temporalserver import connect_to, temporal_server
from sandbox.cluster.temporal_client import ClusterAddress, connect_client, make_runtime
from sandbox.cluster.temporal_worker import run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import ErrorCode, SandboxError
from tests.e2e.test_line_of_tasks import Recorder

pytestmark = [pytest.mark.xdist_group("temporal"), pytest.mark.thorough]
Work = Callable[[Any, asyncio.Event, asyncio.Event], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server lists readers that have ended, too. It lets one read for two seconds at once."""
    log = tmp_path_factory.mktemp("duplicates") / "log"
    with temporal_server(log, 'matching.longPollExpirationInterval="2s"') as found:
        connect_to(ClusterAddress(found)).close()
        yield found


@pytest.fixture
def work(address: str) -> Work:
    """Does the work of a worker until the first event; the second one is set when it has begun."""
    place = f"twice-{uuid.uuid4().hex[:8]}"

    async def run(worker: Any, end: asyncio.Event, begun: asyncio.Event) -> None:
        client = await connect_client(ClusterAddress(address, name=place), make_runtime())
        await run_worker(client, worker, place, WorkerSlots(1), end, lambda _: begun.set())

    return run


def test_a_second_process_with_the_id_of_a_worker_ends_and_a_restarted_worker_does_not(work: Work) -> None:
    async def scene() -> None:
        worker, ends = Recorder({}), [asyncio.Event() for _ in range(3)]
        begun = [asyncio.Event() for _ in ends]
        async with asyncio.TaskGroup() as group:
            try:
                first = group.create_task(work(worker, ends[0], begun[0]))
                await asyncio.wait_for(begun[0].wait(), 60)
                asyncio.get_running_loop().call_later(60, ends[1].set)  # without an error it would work on
                with pytest.raises(SandboxError, match=worker.id) as error:
                    await work(worker, ends[1], begun[1])
                assert (error.value.code, error.value.reason) == (ErrorCode.CONFLICT, "duplicate_worker")
                assert not first.done(), "the first one works on"
                ends[0].set()
                await first
                again = group.create_task(work(worker, ends[2], begun[2]))
                await asyncio.wait_for(begun[2].wait(), 60)
                assert not (await asyncio.wait({again}, timeout=6.0))[0], "it works on"
            finally:
                for end in ends:
                    end.set()

    asyncio.run(scene())


def test_of_two_processes_with_one_id_that_begin_at_once_one_ends_and_one_goes_on(work: Work) -> None:
    async def scene() -> None:
        worker, end = Recorder({}), asyncio.Event()
        both = [asyncio.create_task(work(worker, end, asyncio.Event())) for _ in range(2)]
        try:
            (ended,), (other,) = await asyncio.wait(both, timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(SandboxError, match=worker.id) as error:
                ended.result()
            assert error.value.reason == "duplicate_worker"
            assert not (await asyncio.wait({other}, timeout=6.0))[0], "it works on"
        finally:
            end.set()
            await asyncio.gather(*both, return_exceptions=True)

    asyncio.run(scene())
