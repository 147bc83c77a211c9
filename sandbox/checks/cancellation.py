"""Cancel the checks of a request: a token for programs, and Ctrl-C as a flag instead of an exception.

The flag is a `StopCondition`, read between two polls of the guest, and never an exception in the middle of one. So a
cancelled run is recorded like any other, with verdict `killed`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from sandbox.models import Verdict

if TYPE_CHECKING:  # a program that uses a token does not import the engine
    from sandbox.engine.container_types import StopCondition

SECOND_SIGNAL_S = 1.0
"""A second signal at least this long after the first interrupts at once; `timeout` sends two signals together."""

IsCancelled = Callable[[], bool]
"""Whether the checks of a request should end. Called often, from any thread: it must not block."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Cancellation:
    """A token with which a program ends a request's checks: `Watch(cancelled=token.is_set)`.

    It can be set from any thread or signal handler, any number of times, and stays set. It uses one assignment and no
    lock: a signal handler that interrupts a thread with the lock would wait for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """End the checks: the running one is killed and recorded as `killed`, and no further one starts."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set


def stop_when_cancelled(is_cancelled: IsCancelled) -> StopCondition:
    """A stop condition that is met when the request is cancelled."""
    return lambda: Verdict.KILLED if is_cancelled() else None


def any_of(*conditions: StopCondition) -> StopCondition:
    """A stop condition that is met when any of these is; the first one met decides, and later ones are not called."""
    return lambda: next((found for reason in conditions if (found := reason()) is not None), None)


def latch(condition: StopCondition) -> StopCondition:
    """A stop condition that stays met: a guest that is being stopped cannot be continued."""
    found: list[Verdict] = []

    def evaluate() -> Verdict | None:
        if not found and (verdict := condition()) is not None:
            found.append(verdict)
        return found[0] if found else None

    return evaluate


class _SignalCancellation(Cancellation):
    """A cancellation that signals set."""

    _since = 0.0

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        now = time.monotonic()
        if self.is_set() and now - self._since >= SECOND_SIGNAL_S:
            signal.default_int_handler(number, frame)
        self._since = self._since or now
        self.set()


@contextmanager
def defer_interrupts() -> Iterator[IsCancelled]:
    """Defer KeyboardInterrupt while the body runs: the signal makes the yielded function return True, and the exception
    is raised at the end.

    Only in the main thread, and only for signals with Python's default handler: a program's own handlers are kept. A
    second signal, `SECOND_SIGNAL_S` later or more, raises at once. A nested use, in any thread, yields the function of
    the outermost use, which raises.
    """
    if (outer := _find_outer_cancellation()) is not None:
        yield outer.is_set
        return
    wish = _SignalCancellation()
    ours = [number for number in _SIGNALS if _raises_interrupt(number)]
    for number in ours:
        signal.signal(number, wish.handle_signal)
    try:
        yield wish.is_set
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)
        if wish.is_set():
            raise KeyboardInterrupt


def _find_outer_cancellation() -> _SignalCancellation | None:
    owners = (getattr(signal.getsignal(number), "__self__", None) for number in _SIGNALS)
    return next((owner for owner in owners if isinstance(owner, _SignalCancellation)), None)


def _raises_interrupt(number: signal.Signals) -> bool:
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(number) is signal.default_int_handler
