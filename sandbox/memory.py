"""One budget of memory for all threads of this process and the git commands that they start.

Theory. A count of threads does not limit memory: sixteen that each read a large file need sixteen times its size.
So work reserves bytes before it uses them, waits while others hold them, and returns them at its end. A thread takes
what it needs in one piece, and in the order of arrival, so a large reservation is not passed by small ones for ever. A
thread that holds a reservation never waits for another of the same budget: what it takes in addition exceeds it by a
little. Budgets have an order, and a thread that holds a later one does not wait for an earlier one either: shares of a
budget, `PROCESS_BUDGET`, `TRANSFER_BUDGET`. So no threads can wait for each other.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from sandbox.errors import ErrorCode, SandboxError

if TYPE_CHECKING:
    from ctypes import CDLL

_LOOK_S, _IDLE_CPU_S, _WORK_CPU_S = 5.0, 0.1, 0.3
_ARENA_MAX = -8  # M_ARENA_MAX of mallopt(3)
BUDGET_BYTES = 256 * 1024**2
"""All git commands that read this host's clones, and what the threads read into memory, together."""
TRANSFER_BYTES = 216 * 1024**2
"""All git commands that receive or send objects, and that pack or check a whole clone. Both budgets and a controller
of 100 MiB stay below 600 MB; a fetch alone stays below 300 MB. 204 MiB unpack a difference of a file of 100 MiB."""
LOCAL_WAIT_S = 120.0
"""How long work that uses no network waits for memory, as long as a git command of such work may take."""


def prepare_server() -> None:
    """Keep a process small that lives long and has many threads. Call it before they start.

    It collects garbage as often as Python does by itself. A command waits for 200,000 objects; what readers of output
    leave in cycles would fill a server until then, with 5 MB for each of them. And its threads share one heap. Each
    heap keeps what its thread freed: sixteen of them held 350 MB of free memory, and saved no time: Python runs one
    thread at a time. When it is idle after work, it collects and gives back what is free (`IdleRelease`).
    """
    gc.set_threshold(700, 10, 10)
    with suppress(OSError, AttributeError):
        _load_c_library().mallopt(_ARENA_MAX, 1)
    threading.Thread(target=IdleRelease(_release_garbage).run, name="idle release", daemon=True).start()


class IdleRelease:
    """Gives memory back when a process that worked is idle. A minute of readers of a loud check leaves 55 MB that is
    free and still the process's. `look` is called at regular times with the CPU seconds that the process has used.
    """

    def __init__(self, release: Callable[[], object]) -> None:
        self._release = release
        self._last = self._released_at = 0.0

    def look(self, cpu_s: float) -> None:
        """Release if the process did little since the last look, and something since the last release."""
        is_idle, has_worked = cpu_s - self._last < _IDLE_CPU_S, cpu_s - self._released_at > _WORK_CPU_S
        self._last = cpu_s
        if is_idle and has_worked:
            self._release()
            self._released_at = cpu_s

    def run(self) -> NoReturn:
        """Look for ever, in a thread of its own."""
        while True:
            time.sleep(_LOOK_S)
            self.look(time.process_time())


def _release_garbage() -> None:
    gc.collect()
    return_freed_memory()


def return_freed_memory() -> None:
    """Give the system back what was freed, for up to some 10 ms. No effect with another C library than glibc."""
    with suppress(OSError, AttributeError):
        _load_c_library().malloc_trim(0)


def can_share_heap() -> bool:
    """Whether `prepare_server` and `return_freed_memory` can do their part: glibc can."""
    return hasattr(_load_c_library(), "mallopt") and hasattr(_load_c_library(), "malloc_trim")


def _load_c_library() -> CDLL:
    import ctypes  # noqa: PLC0415 - 3 ms, and most processes never need it

    return ctypes.CDLL(None)


class MemoryBudget:
    """A semaphore that counts bytes. Thread-safe and fair.

    `later`: a budget that comes after this one in the order; threads that hold it do not wait for this one.
    """

    def __init__(self, total_bytes: int, later: MemoryBudget | None = None) -> None:
        self._total = total_bytes
        self._later = later
        self._free = total_bytes
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._holders: Counter[int] = Counter()

    @property
    def total_bytes(self) -> int:
        """The whole budget."""
        return self._total

    @property
    def free_bytes(self) -> int:
        """Bytes that are not reserved. Below 0: reservations inside others exceed the budget."""
        return self._free

    @contextmanager
    def reserve(self, size_bytes: int, deadline_s: float) -> Iterator[None]:
        """Hold a reservation. Raises: `timeout` if it is not free in time; `quota_exceeded` if it never can be."""
        thread = threading.get_ident()
        with self._changed:
            if not self._is_held_by(thread):
                self._wait_for(size_bytes, deadline_s)
            self._free -= size_bytes
            self._holders[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                self._free += size_bytes
                self._holders[thread] -= 1
                if not self._holders[thread]:
                    del self._holders[thread]
                self._changed.notify_all()

    def _is_held_by(self, thread: int) -> bool:
        """Whether this thread, the current one, holds this budget or a later one."""
        return self._holders[thread] > 0 or (self._later is not None and self._later._is_held_by(thread))

    def _wait_for(self, size_bytes: int, deadline_s: float) -> None:
        """Wait in the queue. The caller holds the lock, which is released while it waits."""
        if size_bytes > self._total:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"This needs {size_bytes} bytes of memory; all work of the controller may use {self._total}",
            )
        end = time.monotonic() + deadline_s
        ticket = object()
        self._queue.append(ticket)
        try:
            while self._queue[0] is not ticket or self._free < size_bytes:
                if not self._changed.wait(end - time.monotonic()) and time.monotonic() >= end:
                    raise SandboxError(
                        ErrorCode.TIMEOUT,
                        f"Other requests used the controller's memory for {deadline_s:g} s",
                        hint="Try again when fewer requests are running.",
                    )
        finally:
            self._queue.remove(ticket)
            self._changed.notify_all()


TRANSFER_BUDGET = MemoryBudget(TRANSFER_BYTES)
"""That of git commands that receive or send objects. Apart, so that only transfers wait for a slow remote."""

PROCESS_BUDGET = MemoryBudget(BUDGET_BYTES, later=TRANSFER_BUDGET)
"""Memory belongs to the process, so this budget is no parameter of the surfaces."""
