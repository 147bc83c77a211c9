"""Which repositories' queues a worker reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandbox.cluster.repository_queues import RepositoryQueues


class Reader:
    """Reads nothing until it is shut down, which takes until `may_end` is set."""

    def __init__(self) -> None:
        self.is_reading = False
        self._end, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

    async def run(self) -> None:
        self.is_reading = True
        await self._end.wait()
        await self.may_end.wait()
        self.is_reading = False

    async def shutdown(self) -> None:
        self._end.set()


class Unmade(Reader):
    """The client library refuses it."""

    def __init__(self) -> None:
        raise RuntimeError("refused")


class Broken(Reader):
    """The server refuses it."""

    async def run(self) -> None:
        raise RuntimeError("refused")


class Readers:
    """Every reader that was started, by key, and the queues of a worker with them."""

    def __init__(self, make: Callable[[], Reader] = Reader) -> None:
        self.started: list[tuple[str, Reader]] = []
        self._make = make
        self.queues = RepositoryQueues(self._start, most=2)

    def _start(self, key: str) -> Reader:
        reader = self._make()
        self.started.append((key, reader))
        return reader

    def reading(self) -> list[str]:
        return [key for key, reader in self.started if reader.is_reading]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_repository_used_longest_ago_is_given_up() -> None:
    async def scenario() -> None:
        readers = Readers()
        for key in ("a", "b", "a", "c"):
            readers.queues.use(key)
        await settle()
        assert readers.reading() == ["a", "c"]
        await readers.queues.close()
        readers.queues.use("d")
        await settle()
        assert readers.reading() == [], "a worker that ends takes no more tasks"

    asyncio.run(scenario())


def test_a_queue_is_not_read_twice_while_its_last_reader_ends() -> None:
    async def scenario() -> None:
        readers = Readers()
        readers.queues.use("a")
        await settle()
        first = readers.started[0][1]
        first.may_end.clear()
        readers.queues.drop("a")
        readers.queues.use("a")
        await settle()
        assert len(readers.started) == 1
        first.may_end.set()
        await settle()
        readers.queues.use("a")
        await settle()
        assert readers.reading() == ["a"]
        await readers.queues.close()

    asyncio.run(scenario())


def test_a_reader_that_cannot_be_made_is_no_error_of_the_operation_before() -> None:
    async def scenario() -> None:
        readers = Readers(Unmade)
        readers.queues.use("a")
        await readers.queues.close()

    asyncio.run(scenario())


def test_a_queue_that_cannot_be_read_is_tried_again_at_the_next_use() -> None:
    async def scenario() -> None:
        readers = Readers(Broken)
        for count in (1, 2):
            readers.queues.use("a")
            await settle()
            assert len(readers.started) == count
        await readers.queues.close()

    asyncio.run(scenario())
