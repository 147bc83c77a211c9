"""When a worker takes no more tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from sandbox.cluster import temporal_worker, worker_slots
from sandbox.cluster.worker_slots import WorkerSlots


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def test_two_offers_at_once_do_not_get_one_slot() -> None:
    async def scenario() -> None:
        slots = WorkerSlots(1)
        assert slots.reserve("a")
        assert slots.reserve("a"), "its answer was lost, so it was offered again"
        assert not slots.reserve("b")
        with slots.occupied("a"):
            assert not slots.reserve("b")
        assert slots.reserve("b")

    run(scenario())


def test_an_operation_of_an_own_task_needs_no_free_slot_and_counts() -> None:
    async def scenario() -> None:
        slots = WorkerSlots(1)
        with slots.occupied("a"):
            with slots.occupied("b"):
                assert not slots.reserve("c")
            assert not slots.reserve("c")
        assert slots.reserve("c")

    run(scenario())


def test_an_accepted_task_that_does_not_begin_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_slots, "RESERVED_S", 0.01)

    async def scenario() -> None:
        slots = WorkerSlots(1)
        assert slots.reserve("a")
        await slots.wait_until_free()
        assert slots.reserve("b")

    run(scenario())


def test_a_poller_waits_until_an_operation_has_ended() -> None:
    async def scenario() -> None:
        slots = WorkerSlots(1)
        with slots.occupied("a"):
            waiting = asyncio.create_task(slots.wait_until_free())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting

    run(scenario())


def test_a_worker_whose_disk_is_full_asks_for_no_offer_until_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it fills while the worker waits for a slot. Control: with room, the next one is asked for at once."""
    monkeypatch.setattr(temporal_worker, "ROOM_EVERY_S", 0.0)
    context: Any = None
    looks = 0
    is_full = False

    def has_room() -> bool:
        nonlocal looks
        looks += 1
        return not is_full

    async def scenario() -> None:
        nonlocal is_full
        slots = WorkerSlots(1)
        supplier = temporal_worker._WhenOfferCanBeTaken(slots, has_room)
        await supplier.reserve_slot(context)
        assert looks == 1
        with slots.occupied("a"):
            supplier.release_slot(context)
            asking = asyncio.create_task(supplier.reserve_slot(context))
            await asyncio.sleep(0)
            is_full = True
        while looks < 5:
            await asyncio.sleep(0)
        assert not asking.done()
        is_full = False
        await asking

    run(scenario())
