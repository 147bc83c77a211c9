"""What the daemon does without being asked, at its start and from time to time: reconcile, keep to the limits of
storage, mark approvals as expired, and follow pull requests.

Each is what a command does (`gc`, `pr status`), with the same locks, so a person may do it at the same time. A failure
is logged and tried again at the next turn. Duties that may take long, because they pack clones or wait for a forge,
have threads of their own, so that they do not delay those that have a time to keep.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.config import ServeSettings
from sandbox.errors import SandboxError
from sandbox.models import LeftoverAction, Reconciliation, TaskStatus
from sandbox.workbench import Workbench

_log = logging.getLogger(__name__)


@dataclass
class Timer:
    """One duty. `every_s` 0: never. `due`: when it is done next, on the clock of `run_timers`."""

    name: str
    every_s: float
    work: Callable[[], object]
    due: float = 0.0

    def run_if_due(self, now: float) -> None:
        """Do it if it is time. Failures are logged."""
        if not self.every_s or now < self.due:
            return
        self.due = now + self.every_s
        try:
            self.work()
        except SandboxError as error:
            _log.warning("%s failed: %s", self.name, error.brief)
        except Exception:  # noqa: BLE001 - the edge of a thread: the daemon continues
            _log.exception("%s failed", self.name)


TIMER = "timer"
"""The `program` of what the daemon or a worker does without being asked."""
FILL_S = 5.0
"""How soon a spare task that was taken over is replaced."""
_LOOK_S = 1.0
_END_S = 30.0
"""A server that does not answer keeps no process from ending; what is cut off is done at the next start."""
EXPIRE_S = 20.0
"""How long after its time a question may still be unmarked."""


def make_timers(workbench: Workbench, settings: ServeSettings, pool_size: int = 0) -> list[list[Timer]]:
    """The daemon's duties, a list for each thread. `pool_size`: how many spare tasks there have to be."""
    return [
        [Timer("expiring approvals", EXPIRE_S, workbench.expire_approvals)],
        make_cleaning_timers(workbench, settings),
        [Timer("filling the pool", FILL_S if pool_size else 0, PoolFilling(workbench).fill)],
        [Timer("following pull requests", settings.follow_s, lambda: follow_pull_requests(workbench))],
    ]


def name_as_timer(workbench: Workbench) -> Workbench:
    """The same controller, which the journal names as a timer: no person called these operations."""
    return workbench.acting(workbench.caller.model_copy(update={"program": TIMER}))


class PoolFilling:
    """Fills the pool. Why a spare is missing is logged once, if it is still so at the next turn: one that is being
    taken over is none of our concern.
    """

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._seen, self._logged = set[str](), set[str]()

    def fill(self) -> None:
        """Make what is missing."""
        reasons = set(self._workbench.fill_pool().problems.values())
        lasting = reasons & self._seen
        for reason in sorted(lasting - self._logged):
            _log.warning("a spare task is missing: %s", reason)
        self._seen, self._logged = reasons, lasting


class Cleaning:
    """Cleans up. What failed, and which limit of storage is exceeded, is logged once, until it is no longer so: else
    the first sign of it would be a check that is refused. `names_limits`: no other duty names the limits.
    """

    def __init__(self, clean: Callable[[], Reconciliation], *, names_limits: bool = True) -> None:
        self._clean, self._names_limits = clean, names_limits
        self._logged = set[tuple[str, str]]()

    def run(self) -> None:
        """One round."""
        leftovers = self._clean().leftovers
        wrong = {
            (left.kind, left.name): left.note
            for left in leftovers
            if left.action is LeftoverAction.FAILED
            or (self._names_limits and (left.kind, left.action) == ("storage", LeftoverAction.KEPT))
        }
        for name in sorted(wrong.keys() - self._logged):
            _log.warning("cleaning up, %s %s: %s", *name, wrong[name])
        self._logged = set(wrong)
        for left in leftovers:
            if left.action is LeftoverAction.REMOVED:
                _log.info("cleaning up, %s %s was removed: %s", left.kind, left.name, left.note)


def start_timers(timers: list[list[Timer]], ending: threading.Event, look_s: float = _LOOK_S) -> list[threading.Thread]:
    """Do what is due until `ending` is set, in a thread for each list."""
    threads = [
        threading.Thread(target=run_timers, args=(one, ending, look_s), name=one[0].name, daemon=True) for one in timers
    ]
    for thread in threads:
        thread.start()
    return threads


def make_cleaning_timers(workbench: Workbench, settings: ServeSettings, first_s: float = 0.0) -> list[Timer]:
    """What keeps a home from growing. `first_s`: how long after this call they are done for the first time."""
    due = time.monotonic() + first_s
    reconciling = Cleaning(workbench.collect, names_limits=not settings.storage_s)
    return [
        Timer("reconciling", settings.reconcile_s, reconciling.run, due),
        Timer("keeping to the limits of storage", settings.storage_s, Cleaning(workbench.keep_to_limits).run, due),
    ]


@contextmanager
def timers_running(timers: list[Timer]) -> Iterator[None]:
    """Do what is due, in a thread, while the body runs; what has begun then has `_END_S` to end."""
    ending = threading.Event()
    [thread] = start_timers([timers], ending)
    try:
        yield
    finally:
        ending.set()
        thread.join(_END_S)


def follow_pull_requests(workbench: Workbench) -> None:
    """Ask the forge about each open pull request; a merged or closed one changes its task, as `pr status` does."""
    for task in workbench.tasks():
        if task.status is TaskStatus.PR_OPEN:
            try:
                workbench.pull_request_status(task.id)
            except SandboxError as error:
                _log.warning("the pull request of %s cannot be followed: %s", task.id, error.brief)


def run_timers(timers: list[Timer], ending: threading.Event, look_s: float = _LOOK_S) -> None:
    """Do what is due until `ending` is set."""
    while not ending.is_set():
        for timer in timers:
            if ending.is_set():
                return
            timer.run_if_due(time.monotonic())
        ending.wait(look_s)
