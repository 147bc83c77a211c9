"""Callbacks of a caller that follows running checks, and may cancel them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox import listener as listeners
    from sandbox.checks import cancellation as cancellations
    from sandbox.checks.cancellation import Cancellation
    from sandbox.models import Check, CheckRun
else:  # loaded at first use (docs/adr/0080)
    listeners = LazyModule("sandbox.listener")
    cancellations = LazyModule("sandbox.checks.cancellation")

REPEAT_S = 30.0


@contextmanager
def report_step(report: Callable[[str], None], text: str, every_s: float = REPEAT_S) -> Iterator[None]:
    """Report a step that may take minutes: before the block, and again, from another thread, while the block runs."""
    report(text)
    over, began = threading.Event(), time.monotonic()

    def repeat() -> None:
        while not over.wait(every_s):
            report(f"{text}: {time.monotonic() - began:.0f} s so far")

    thread = threading.Thread(target=repeat, name="step", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _ignore_announcement(_check: Check, _run: CheckRun | None) -> None:
    return None


def _ignore_start(_run_id: str, _check: Check) -> None:
    return None


def _ignore_position(_position: int) -> None:
    return None


def _ignore_line(_line: str) -> None:
    return None


def _without_reason() -> str:
    return ""


def _never() -> bool:
    return False


@contextmanager
def hold_errors(follow: Callable[[str, bytes], None] | None) -> Iterator[Callable[[str, bytes], None] | None]:
    """The listener for the check in the body. Raises what it raised, at the end of a body without an error."""
    if follow is None:
        yield None
        return
    held = listeners.HeldListener(follow, "output of a check")
    yield held
    if held.error is not None:
        raise held.error


@dataclass(frozen=True)
class Watch:
    """`announce`: called before a check (with None) and after it with its run. `follow`: ('stdout'|'stderr', chunk),
    from one thread at a time. An exception of it is raised when the check has ended and has its record; of a run in the
    background, and of a call that lasts longer than 5 s after the end of its check, it is logged only, and one of a
    closed stream (a broken pipe) is ignored.

    `cancelled`: called several times a second, from the thread that runs the check or waits to run it. True stops the
    check (`killed`), and no further check of the request starts; see `sandbox.Cancellation`. `queued`: called with the
    position in the queue while other checks of this home run: 1 is next, 0 means that the turn has come.
    `starts`: called before a check with the id of its run. With this id the log can be read while the check runs.
    `building`: called with each line of the build of an image that the checks need and the engine does not have, and of
    fetches of packages; also from other threads.
    `waiting`: called with what holds the task, when the request waits for it, and with '' when the wait is over.
    `stop_reason`: called after a check was killed: why the request was stopped, '' if that is not known.
    `warn`: called with what a reader of the verdicts has to know, such as packages that could not be fetched.
    """

    announce: Callable[[Check, CheckRun | None], None] = _ignore_announcement
    follow: Callable[[str, bytes], None] | None = None
    cancelled: Callable[[], bool] = _never
    queued: Callable[[int], None] = _ignore_position
    starts: Callable[[str, Check], None] = _ignore_start
    building: Callable[[str], None] = _ignore_line
    warn: Callable[[str], None] = _ignore_line
    waiting: Callable[[str], None] = _ignore_line
    stop_reason: Callable[[], str] = _without_reason

    def __post_init__(self) -> None:
        if self.follow is not None and not isinstance(self.follow, listeners.OneAtATime):
            object.__setattr__(self, "follow", listeners.OneAtATime(self.follow))


def label_checks(watch: Watch, label: str) -> Watch:
    """The same watch, with a label before the id of each check that is announced: of which tree it is."""

    def announce(check: Check, run: CheckRun | None) -> None:
        watch.announce(check.model_copy(update={"id": f"{label}{check.id}"}), run)

    return replace(watch, announce=announce)


@contextmanager
def share_watch(watch: Watch) -> Iterator[tuple[Watch, Cancellation]]:
    """The watch for threads that run checks in parallel: they announce one at a time. The yielded cancellation ends all
    of them, as does an interrupt, which is raised at the end.
    """
    cancellation, announce_lock = cancellations.Cancellation(), threading.Lock()

    def announce(check: Check, run: CheckRun | None) -> None:
        with announce_lock:
            watch.announce(check, run)

    with cancellations.defer_interrupts() as interrupted:

        def is_cancelled() -> bool:
            return cancellation.is_set() or interrupted() or watch.cancelled()

        yield replace(watch, announce=announce, cancelled=is_cancelled), cancellation
