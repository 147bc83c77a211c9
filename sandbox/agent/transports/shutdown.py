"""End a server cleanly when it is told to: what a service manager sends is no failure, what a person presses is 130."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `end` (in the main thread, each time) instead of raising wherever the program happens to be.

    Raises: `KeyboardInterrupt` afterwards for Ctrl-C and a closed terminal; after SIGTERM nothing. What is ignored
    stays ignored. In another thread than the main one signals are none of ours.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        end(number, frame)

    ours = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if _is_main() else ()
    before = {n: signal.signal(n, note) for n in ours if signal.getsignal(n) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came and came[0] != signal.SIGTERM:
        raise KeyboardInterrupt


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
