"""Since when somebody untrusted may be at work in a worktree, so that its files' times are judged by it.

The mark is made before a guest starts and goes only when it has ended beyond doubt. After a crash, or an end that
nobody saw, it stays: then all that changed since is read again at each look, which is slow and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.store.home import write_atomically


@contextmanager
def guest_at_work(mark: Path, now_ns: Callable[[], int]) -> Iterator[None]:
    """Hold the mark while a guest lives. The caller holds the lock of the task.

    An exception leaves it: the guest may live on. So does a mark that was there before: that guest is not ours.
    """
    ours = not mark.exists()
    if ours:
        write_atomically(mark, str(now_ns()).encode(), synced=False)  # no guest outlives the kernel, nor does an index
    yield
    if ours:
        mark.unlink(missing_ok=True)


def guest_since_ns(mark: Path) -> int | None:
    """Start of the oldest guest that may live, None when there is none; 0, the beginning, when nobody can tell."""
    try:
        return int(mark.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return 0
