"""Two processes with the id of one worker, as after a home was copied. The server and the queues are real."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from devtools.temporalserver import connect_to, temporal_server
from sandbox.cluster.temporal_client import ClusterAddress, connect_client
from sandbox.cluster.temporal_worker import run_worker
from sandbox.cluster.worker_slots import WorkerSlots
from sandbox.errors import ErrorCode, SandboxError
from tests.e2e.test_line_of_tasks import Recorder

pytestmark = pytest.mark.xdist_group("temporal")


def test_a_second_process_with_the_id_of_a_worker_ends_and_a_restarted_worker_does_not(tmp_path: Path) -> None:
    """The server lists readers that have ended, too. It lets one read for two seconds at once."""
    place = f"twice-{uuid.uuid4().hex[:8]}"

    async def work(worker: Any, end: asyncio.Event, begun: asyncio.Event) -> None:
        client = await connect_client(ClusterAddress(address, name=place))
        await run_worker(client, worker, place, WorkerSlots(1), end, lambda _: begun.set())

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

    with temporal_server(tmp_path / "log", 'matching.longPollExpirationInterval="2s"') as address:
        connect_to(ClusterAddress(address, name=place)).close()
        asyncio.run(scene())
