"""End a server cleanly on a signal: SIGTERM of a service manager is exit code 0, Ctrl-C of a person is 130."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handle_signals(on_signal: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `on_signal` in the main thread for each signal, instead of raising at an arbitrary place of the program.

    Raises: `KeyboardInterrupt` afterwards for Ctrl-C and a closed terminal, but not for SIGTERM. Ignored signals stay
    ignored. Outside the main thread no handler is installed.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        on_signal(number, frame)

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
