"""Record since when a guest may be running in a worktree: it decides which file times are evidence.

The mark is created before a guest starts, and removed only when the guest has certainly ended. After a crash, or an end
that was not observed, it stays. Then every walk reads again all files that changed since: slow, but always correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.store.home import write_atomically


@contextmanager
def mark_guest_running(mark: Path, now_ns: Callable[[], int], run_id: str = "") -> Iterator[None]:
    """Keep the mark while a guest is running, for the run with this id. The caller holds the lock of the task.

    After an exception the mark stays: the guest may still run. A mark that already existed stays too: it belongs to
    another guest.
    """
    ours = not mark.exists()
    if ours:
        write_atomically(
            mark, f"{now_ns()} {run_id}".encode(), synced=False
        )  # neither guest nor index survives a reboot
    yield
    if ours:
        mark.unlink(missing_ok=True)


def guest_since_ns(mark: Path) -> int | None:
    """Start of the oldest guest that may be running; None if there is none; 0, the epoch, if it is unknown."""
    try:
        return int(mark.read_bytes().split()[0])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError):
        return 0


def read_guest_run(mark: Path) -> str | None:
    """The id of the run for which a guest may be running; None if there is none, or it is unknown."""
    try:
        words = mark.read_text("ascii").split()
    except (OSError, ValueError):
        return None
    return words[1] if len(words) > 1 else None
