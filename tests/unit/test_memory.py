"""The budget of memory that all threads share."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from devtools.waiting import wait_until
from sandbox.errors import ErrorCode
from sandbox.memory import IdleRelease, MemoryBudget
from tests.unit.conftest import refused


@contextmanager
def held_elsewhere(budget: MemoryBudget, size: int) -> Iterator[threading.Event]:
    """Another thread holds `size` bytes until the event is set or the block ends."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with budget.reserve(size, 10):
            taken.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(10)
        yield done
    finally:
        done.set()
        thread.join()


def test_s09_more_than_the_budget_is_never_held() -> None:
    budget, held, highest = MemoryBudget(100), [0], [0]
    lock = threading.Lock()

    def work(size: int) -> None:
        with budget.reserve(size, 30):
            with lock:
                held[0] += size
                highest[0] = max(highest[0], held[0])
            time.sleep(0.001)
            with lock:
                held[0] -= size

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, [10, 60, 30, 100, 5] * 20))
    assert 60 <= highest[0] <= 100
    assert budget.free_bytes == 100


def test_a_reservation_that_is_not_free_in_time_is_a_timeout() -> None:
    budget = MemoryBudget(100)
    with held_elsewhere(budget, 60) as done:
        with refused(ErrorCode.TIMEOUT), budget.reserve(41, 0.05):
            pytest.fail("more than the budget was reserved")
        with budget.reserve(40, 0.05):
            pass
        done.set()
        with budget.reserve(100, 10):
            pass


def test_threads_that_hold_one_budget_and_want_the_other_do_not_wait_for_each_other() -> None:
    """As a comparison that fetches files, beside a repack that reads settings. Control: the first one waits."""
    transfer = MemoryBudget(100)
    process = MemoryBudget(100, later=transfer)
    both, waited = threading.Barrier(2), list[float]()

    def compare() -> None:
        with process.reserve(100, 10):
            both.wait(10)
            started = time.monotonic()
            with transfer.reserve(10, 10):
                waited.append(time.monotonic() - started)

    def repack() -> None:
        with transfer.reserve(100, 10):
            both.wait(10)
            time.sleep(0.2)  # the other one waits meanwhile
            with process.reserve(10, 0.1):
                assert process.free_bytes == -10

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(compare), pool.submit(repack)]:
            done.result(20)
    assert waited[0] > 0.1
    assert (transfer.free_bytes, process.free_bytes) == (100, 100)


def test_a_reservation_above_the_budget_is_refused_at_once() -> None:
    with refused(ErrorCode.QUOTA_EXCEEDED), MemoryBudget(100).reserve(101, 60):
        pytest.fail("more than the budget was reserved")


def test_a_large_reservation_is_not_passed_by_small_ones() -> None:
    budget, order = MemoryBudget(100), list[str]()

    def take(name: str, size: int) -> None:
        with budget.reserve(size, 10):
            order.append(name)

    with held_elsewhere(budget, 60) as done:
        large = threading.Thread(target=take, args=("large", 90))
        large.start()
        wait_until(lambda: len(budget._queue) == 1)
        small = threading.Thread(target=take, args=("small", 40))  # it would fit now
        small.start()
        wait_until(lambda: len(budget._queue) == 2)
        done.set()
        large.join()
        small.join()
    assert order == ["large", "small"]


def test_a_thread_that_holds_a_reservation_never_waits_for_another() -> None:
    """Else two threads that each hold a half and ask for more would wait for each other."""
    budget = MemoryBudget(100)
    with held_elsewhere(budget, 50), budget.reserve(50, 1), budget.reserve(50, 0.05):
        assert budget.free_bytes == -50
    assert budget.free_bytes == 100


def test_an_error_returns_the_reservation() -> None:
    budget = MemoryBudget(100)
    with pytest.raises(ZeroDivisionError), budget.reserve(100, 1):
        raise ZeroDivisionError
    assert budget.free_bytes == 100


def test_a_process_gives_memory_back_when_it_is_idle_after_work() -> None:
    """Not while it works, and not again and again."""
    released: list[float] = []
    idle = IdleRelease(lambda: released.append(1))
    looks = [(0.05, 0), (3.0, 0), (6.0, 0), (6.01, 1), (6.02, 1), (6.05, 1)]
    for cpu_s, expected in looks:
        idle.look(cpu_s)
        assert len(released) == expected, cpu_s


HEAPS = """
import ctypes, os, sys, threading
from sandbox.memory import prepare_server
if sys.argv[1] == "server":
    prepare_server()
threads = [threading.Thread(target=lambda: bytearray(100_000)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(os.dup(1), b"w")))
library.fflush(None)
"""


def test_the_threads_of_a_server_share_one_heap() -> None:
    """Control: those of another process do not."""

    def count_heaps(kind: str) -> int:
        done = subprocess.run([sys.executable, "-c", HEAPS, kind], capture_output=True, check=True)
        return done.stdout.count(b"<heap nr=")

    assert count_heaps("program") > 1, "void"
    assert count_heaps("server") == 1
