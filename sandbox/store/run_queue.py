"""The run queue: which checks run now and which wait, among all processes that share a home.

Theory. Each check that wants to run has a ticket: an empty file. Its name contains all its data, and its owner holds
its lock, so the kernel invalidates the ticket of a dead process. All reads and changes happen under one lock and take
about a millisecond. There is no other state, so a kill cannot leave wrong state. In each process only the first of its
waiting threads polls the queue; it polls at intervals, and at once when a slot of the same process ends. On disk the
queue is the directory `turns`, and its lock is `line.lock` (`Home.run_queue`). The first ticket also waits until there
is memory for its check (`MemoryDemand`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.lockfile import create_locked, remove_abandoned
from sandbox.store.queue_tickets import (
    Ticket,
    draw_ticket,
    may_run,
    parse_ticket,
    round_up_to_mib,
    waiting_in_order,
)

POLL_S, MAX_POLL_S = 0.02, 2.0
"""Poll interval of the first ticket (the ticket at position n polls every n * `POLL_S`), and the longest interval."""

GIVE_UP_POLL_S = 0.25
"""Longest interval between two calls of `give_up`."""

WAITING_STALE_S, RUNNING_STALE_S = 30.0, 300.0
"""A waiting ticket that was not refreshed for `WAITING_STALE_S` is skipped until it is refreshed. A running ticket
without a heartbeat for `RUNNING_STALE_S` no longer counts. Both belong to processes that are stopped or hang.
"""

_LOCK_WAIT_S = 60.0  # the lock is held for about a millisecond; after this time its owner must be a stopped process
_LOCK_PAUSES_S = (0.0005, 0.02)

GiveUp = Callable[[], bool]
"""Called while waiting: whether to leave the queue."""

OnPosition = Callable[[int], None]
"""Called with the position in the queue when it changes: 1 is next; 0: the check may run after a wait."""


class MemoryDemand(Protocol):
    """The memory that a check needs before it may run. `running`: the tickets of the home's checks that run now."""

    @property
    def needed_bytes(self) -> int:
        """What the check may use."""
        ...

    def fits(self, running: Sequence[Ticket]) -> bool:
        """Whether the check may run beside those that run. Called with the queue locked, so it must be quick."""
        ...

    def make_room(self, running: Sequence[Ticket]) -> bool:
        """Called without the lock when it does not fit: free what no check uses. Returns whether it fits now."""
        ...


class NoMemoryDemand:
    """The demand of a check that waits for no memory."""

    needed_bytes = 0

    def fits(self, running: Sequence[Ticket]) -> bool:
        return True

    def make_room(self, running: Sequence[Ticket]) -> bool:
        return True


@dataclass(frozen=True)
class QueueSlot:
    """The outcome of a wait for a slot. `granted`: whether the check may run; False if `give_up` ended the wait."""

    granted: bool
    _fd: int

    def heartbeat(self) -> None:
        """Heartbeat: call it several times a minute while the check runs. Costs reading the clock and one fstat."""
        if time.time() - os.fstat(self._fd).st_mtime > WAITING_STALE_S / 8:
            os.utime(self._fd)


@dataclass(frozen=True)
class RunQueue:
    """The run queue of one home. `parallel`: how many checks run at once. One object for all threads of a process."""

    folder: Path
    parallel: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: list[Ticket] = field(default_factory=list)  # of this process
    _positions: dict[str, int] = field(default_factory=dict)  # of the last poll, by nonce

    @contextmanager
    def wait_for_slot(
        self, owner: str, give_up: GiveUp, on_position: OnPosition, demand: MemoryDemand | None = None
    ) -> Iterator[QueueSlot]:
        """Wait for a slot for `owner`, with memory for its `demand`, and hold it during the body. If `give_up` ends the
        wait, the body runs all the same, with `granted` False.

        Raises: `conflict` if a stopped process holds the queue's lock; errors of `demand`.
        """
        demand = demand or NoMemoryDemand()
        ticket, held = self._join(owner, demand)
        try:
            yield QueueSlot(ticket.running or self._wait(ticket, demand, give_up, on_position), held)
        finally:
            self._leave(ticket, held)

    def list_tickets(self) -> list[Ticket]:
        """All live tickets. The files of dead ones are removed."""
        with self._lock_queue():
            return self._list_live_tickets()

    def _join(self, owner: str, demand: MemoryDemand) -> tuple[Ticket, int]:
        with self._lock_queue():
            others = self._list_live_tickets()
            ticket = draw_ticket(others, owner, secrets.token_hex(8), round_up_to_mib(demand.needed_bytes))
            rivals = [t for t in others if self._is_fresh(t)]
            runs = may_run(ticket, [*rivals, ticket], self.parallel) and demand.fits(_list_running(rivals))
            ticket = replace(ticket, running=runs)
            held, beside = create_locked(self.folder / ticket.name)
            beside.rename(self.folder / ticket.name)
        if not ticket.running:
            with self._changed:
                self._waiting.append(ticket)
        return ticket, held

    def _leave(self, ticket: Ticket, held: int) -> None:
        for running in (True, False):
            with suppress(OSError):
                (self.folder / replace(ticket, running=running).name).unlink()
        os.close(held)
        self._wake_next(ticket)

    def _wake_next(self, ticket: Ticket) -> None:
        """Remove the ticket from `_waiting` and wake the waiting threads of this process; the first of them polls."""
        with self._changed:
            self._waiting[:] = [t for t in self._waiting if t.nonce != ticket.nonce]
            self._changed.notify_all()

    def _wait(self, ticket: Ticket, demand: MemoryDemand, give_up: GiveUp, on_position: OnPosition) -> bool:
        reported = 0
        while not give_up():
            position = self._find_known_position(ticket) or self._poll(ticket, demand)
            if position != reported:
                on_position(position)
                reported = position
            if position == 0:
                self._wake_next(ticket)
                return True
            self._pause(min(MAX_POLL_S, POLL_S * position), give_up)
        return False

    def _pause(self, seconds: float, give_up: GiveUp) -> None:
        """Wait for the next poll, a change in this process, or a reason to give up."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0 and not give_up():
            with self._changed:
                if self._changed.wait(min(GIVE_UP_POLL_S, left_s)):
                    return

    def _find_known_position(self, ticket: Ticket) -> int:
        """Position of a ticket behind another ticket of this process, which polls for both; 0: poll yourself."""
        with self._changed:
            first = waiting_in_order(self._waiting)[0]
            return 0 if first.nonce == ticket.nonce else self._positions.get(ticket.nonce, 0)

    def _poll(self, ticket: Ticket, demand: MemoryDemand) -> int:
        """The position in the queue, or 0 after taking a slot. Raises: as `_take_slot`; errors of `demand`."""
        while True:
            position, running = self._take_slot(ticket, demand)
            if running is None or not demand.make_room(running):
                return position

    def _take_slot(self, ticket: Ticket, demand: MemoryDemand) -> tuple[int, list[Ticket] | None]:
        """The position in the queue, or 0 after taking a slot; and if only memory is lacking, the running tickets.

        Raises: `internal` if the ticket was deleted.
        """
        running = None
        with self._lock_queue():
            found = self._list_live_tickets()
            positions = {t.nonce: n for n, t in enumerate(waiting_in_order(found), 1)}
            if ticket.nonce not in positions:
                raise SandboxError(
                    ErrorCode.INTERNAL,
                    "The check's ticket in the run queue was deleted",
                    hint="Files in `repositories/turns` of the home were deleted by hand: run the check again.",
                )
            rivals = [t for t in found if self._is_fresh(t)]
            if may_run(ticket, rivals, self.parallel):
                running = _list_running(rivals)
                if demand.fits(running):
                    (self.folder / ticket.name).rename(self.folder / replace(ticket, running=True).name)
                    return 0, None
        with self._changed:
            self._positions.clear()
            self._positions.update(positions)
        return positions[ticket.nonce], running

    def _is_fresh(self, ticket: Ticket) -> bool:
        """Whether a ticket was refreshed recently, by its file's mtime. Refreshes the waiting tickets of this process.

        A running ticket is refreshed by its own heartbeat only. A stopped process would otherwise block all tickets
        behind it. A wrong clock only changes the order for a while.
        """
        path = self.folder / ticket.name
        try:
            age_s = time.time() - path.stat().st_mtime
            if self._is_ours(ticket) and age_s > WAITING_STALE_S / 8:
                os.utime(path)
        except FileNotFoundError:
            return False
        return self._is_ours(ticket) or age_s < (RUNNING_STALE_S if ticket.running else WAITING_STALE_S)

    def _is_ours(self, ticket: Ticket) -> bool:
        """Whether a thread of this process waits with the ticket."""
        with self._changed:
            return any(t.nonce == ticket.nonce for t in self._waiting)

    def _list_live_tickets(self) -> list[Ticket]:
        """Tickets with live owners; files of the others are removed. The caller holds the queue's lock."""
        names = [path.name for path in self.folder.iterdir()]
        found = [ticket for name in names if (ticket := parse_ticket(name)) is not None]
        return [ticket for ticket in found if not remove_abandoned(self.folder / ticket.name)]

    @contextmanager
    def _lock_queue(self) -> Iterator[None]:
        """Hold the queue's lock."""
        lock = os.open(self.folder / "line.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _acquire(lock)
            yield
        finally:
            os.close(lock)


def _list_running(tickets: Sequence[Ticket]) -> list[Ticket]:
    return [ticket for ticket in tickets if ticket.running]


def _acquire(lock: int) -> None:
    ends_at, (pause_s, longest_s) = time.monotonic() + _LOCK_WAIT_S, _LOCK_PAUSES_S
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() > ends_at:
            raise SandboxError(
                ErrorCode.CONFLICT,
                "The run queue stays locked",
                hint="Is a `sandbox` process stopped (state T in `ps`)? Continue or end it.",
            )
        time.sleep(pause_s)
        pause_s = min(longest_s, 2 * pause_s)
