"""Wishes to stop the checks of a request: a token for programs, and Ctrl-C turned into a claim.

A wish is a claim that is asked for between two looks at the guest (`WhyStop`), never an exception in the middle of one:
the run that it ends is recorded like any other, with verdict `killed`.
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

if TYPE_CHECKING:  # a token costs a program no engine
    from sandbox.engine.container import WhyStop

IMPATIENT_S = 1.0
"""A signal this long after the first one interrupts at once; `timeout` sends two together."""

Cancelled = Callable[[], bool]
"""Whether somebody wants the checks of a request to end. Asked often, from any thread: it must not wait."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Cancellation:
    """A token that a program gives to end a request's checks: `Watch(cancelled=token.is_set)`.

    Given from any thread or signal handler, once or more often; it stays given. One assignment and no lock: a handler
    that came while its own thread held one would wait for ever.
    """

    def __init__(self) -> None:
        self._given = False

    def set(self) -> None:
        """End the checks: the running one is killed and recorded so, no further one starts."""
        self._given = True

    def is_set(self) -> bool:
        """Whether it was given."""
        return self._given


def stops_when(cancelled: Cancelled) -> WhyStop:
    """The reason of a cancelled request."""
    return lambda: Verdict.KILLED if cancelled() else None


def first_reason(*reasons: WhyStop) -> WhyStop:
    """The first of several reasons that holds; those after it are not asked."""
    return lambda: next((found for reason in reasons if (found := reason()) is not None), None)


def lasting(reason: WhyStop) -> WhyStop:
    """A reason that stays once it was found: a wish cannot be taken back from a guest that is being ended."""
    found: list[Verdict] = []

    def asked() -> Verdict | None:
        if not found and (verdict := reason()) is not None:
            found.append(verdict)
        return found[0] if found else None

    return asked


class _Wish(Cancellation):
    """A cancellation that signals give."""

    _since = 0.0

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        now = time.monotonic()
        if self.is_set() and now - self._since >= IMPATIENT_S:
            signal.default_int_handler(number, frame)
        self._since = self._since or now
        self.set()


@contextmanager
def interrupts_deferred() -> Iterator[Cancelled]:
    """While the body runs, what would raise KeyboardInterrupt makes the yielded claim true instead; raised at the end.

    Only in the main thread, and only for signals that Python's own handler has: a program that chose another one means
    it. A second signal, `IMPATIENT_S` later or more, raises at once. An inner use, of whatever thread, has the claim of
    the outermost, which raises.
    """
    if (outer := _wish_in_force()) is not None:
        yield outer.is_set
        return
    wish = _Wish()
    ours = [number for number in _SIGNALS if _raises(number)]
    for number in ours:
        signal.signal(number, wish.take)
    try:
        yield wish.is_set
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)
        if wish.is_set():
            raise KeyboardInterrupt


def _wish_in_force() -> _Wish | None:
    owners = (getattr(signal.getsignal(number), "__self__", None) for number in _SIGNALS)
    return next((owner for owner in owners if isinstance(owner, _Wish)), None)


def _raises(number: signal.Signals) -> bool:
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(number) is signal.default_int_handler
