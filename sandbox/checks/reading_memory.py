"""Memory for the results that readers of reports and output keep, reserved from the budget of the process.

Theory. What a result takes does not depend on its text: 640 bytes, a failed one 1,200 (CPython 3.11). A line of TAP
with a test may have three bytes, so 60 KB become 13 MB, and with those of a second file, which are read before it is
known that they are too many, twice that. So the size of what is read says how much to reserve, up to `MOST_BYTES`: of
more tests only `MOST_RESULTS` are kept. A small one waits for no memory. A guest can keep a reader busy for half a
minute, so all readers together take a quarter of the budget, and work on clones has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.memory import LOCAL_WAIT_S, PROCESS_BUDGET, MemoryBudget

MOST_BYTES = 64 * 1024**2
TAP_FACTOR, LINE_FACTOR = 220, 650
"""Bytes that are kept for each byte of lines that are tests, of `ok` and of empty ones. Measured: 214 and 630."""

_UNRESERVED_BYTES = 4 * 1024**2
_READERS_SHARE = MemoryBudget(MOST_BYTES)


@contextmanager
def reserve_for_reading(need_bytes: int) -> Iterator[None]:
    """Wait for memory, if much is needed. What gets none for a long time is read all the same: how busy the host is
    must not change what a run says.
    """
    with ExitStack() as held:
        if need_bytes > _UNRESERVED_BYTES:
            size_bytes = min(need_bytes, MOST_BYTES)
            with suppress(SandboxError):
                held.enter_context(_READERS_SHARE.reserve(size_bytes, LOCAL_WAIT_S))
                held.enter_context(PROCESS_BUDGET.reserve(size_bytes, LOCAL_WAIT_S))
        yield


@contextmanager
def reserve_for_logs(logs: Sequence[Path], factor: int) -> Iterator[None]:
    """As `reserve_for_reading`, for logs of which each line may be a test. `factor`: one of those above."""
    with reserve_for_reading(factor * sum(log.stat().st_size for log in logs)):
        yield
