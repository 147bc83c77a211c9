"""How much a comparison of a worktree with a tree may find, and its memory: one large comparison at a time.

Theory. A comparison of 75,000 changed files holds up to 200 MB until its answer is complete, and each of sixteen
threads may be at one. How many files there are is known only while they are listed, and a thread that waits in the
middle still holds what it found. So a comparison starts with the limits of a small one. Past them, what it found is
dropped; it waits until no other large comparison is in progress, reserves its memory, and starts again. The second
start repeats a small part of the work, and Python runs one thread at a time, so waiting costs no time of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sandbox.errors import SandboxError
from sandbox.files.names import TOO_MANY_NAMES, WalkLimits
from sandbox.git.contents import ContentSpool
from sandbox.lazy_dataclass import dataclass
from sandbox.memory import LOCAL_WAIT_S, PROCESS_BUDGET, MemoryBudget, return_freed_memory

MEMORY_BYTES = 192 * 1024**2
"""Of a large comparison; a quarter of the budget is left for the git commands of others."""

_IN_PROGRESS = MemoryBudget(MEMORY_BYTES)
"""Only large comparisons wait for this. In the queue of the whole budget, git commands would wait behind them."""

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ComparisonLimits:
    """`names`: what is read, besides files of a plain worktree that are known to be unchanged. `changed_files`,
    `changed_name_bytes`: changed and rejected names, and the length of their paths together; each name costs about
    1.6 kB of memory, and its path several times.
    """

    names: WalkLimits
    changed_files: int
    changed_name_bytes: int


SMALL = ComparisonLimits(WalkLimits(entries=2000, name_bytes=256 * 1024), 2000, 256 * 1024)
LARGE = ComparisonLimits(WalkLimits(entries=200_000, name_bytes=32 * 1024**2), 75_000, 12 * 1024**2)


@contextmanager
def compare_within_memory(spool: ContentSpool, find: Callable[[ComparisonLimits], _Found]) -> Iterator[_Found]:
    """What `find` found, within the memory of a small comparison or else of a large one, which is held until the body
    ends. `find` may be called twice; what it put into the spool the first time is dropped.

    Raises: `quota_exceeded` past the limits of a large one; `timeout` if others use the memory for `LOCAL_WAIT_S`.
    """
    start = spool.position
    try:
        found = find(SMALL)
    except SandboxError as error:
        if error.reason != TOO_MANY_NAMES:
            raise
    else:
        yield found
        return
    spool.rewind(start)
    with _IN_PROGRESS.reserve(MEMORY_BYTES, LOCAL_WAIT_S), PROCESS_BUDGET.reserve(MEMORY_BYTES, LOCAL_WAIT_S):
        return_freed_memory()  # of the answer before this one, which lived longer than its reservation
        try:
            yield find(LARGE)
        finally:
            return_freed_memory()
