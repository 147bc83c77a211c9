"""Who runs a check now and who waits, among all processes that share a home.

Theory. Each check that wants to run has a ticket: an empty file whose name says all there is to know and whose lock its
owner holds, so that the kernel voids the ticket of whoever dies. All looks and changes happen under one lock and take
about a millisecond; nothing is remembered anywhere else, so a kill leaves nothing that could be wrong. In each process
only the first of its waiting threads looks; it wakes by itself, and at once when a turn of the same process ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.lockfile import make_claimed, remove_abandoned
from sandbox.store.queue_tickets import Ticket, draw, in_line, may_run, parse_ticket

LOOK_S, SLOWEST_LOOK_S = 0.02, 2.0
"""How often the first in line looks whether it is its turn; the second half as often, and so on; and the slowest."""

ASK_S = 0.25
"""How often each is asked whether to give up, at least."""

ASLEEP_S, AT_WORK_ASLEEP_S = 30.0, 300.0
"""Who waits and has not looked for so long is passed over until he does; who runs and has not said that he is there
does not count any more. Both are stopped processes, or hang.
"""

_LOCK_WAIT_S = 60.0  # a look takes about a millisecond; longer than this, and its process is stopped
_LOCK_PAUSES_S = (0.0005, 0.02)

GiveUp = Callable[[], bool]
"""Asked while waiting: whether to leave the line."""

Queued = Callable[[int], None]
"""Told the position in the line whenever it changes: 1 for the next one, 0 when its turn has come after a wait."""


@dataclass(frozen=True)
class Turn:
    """Ours while it lasts. `granted`: it came before the wait was given up."""

    granted: bool
    _held: int

    def here(self) -> None:
        """We are at work; to be said several times a minute. Costs a look at the clock and the file."""
        if time.time() - os.fstat(self._held).st_mtime > ASLEEP_S / 8:
            os.utime(self._held)


@dataclass(frozen=True)
class Turns:
    """The line of one home. `parallel`: how many checks run at once. One object serves all threads of a process."""

    folder: Path
    parallel: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: list[Ticket] = field(default_factory=list)  # of this process
    _positions: dict[str, int] = field(default_factory=dict)  # as the last look found them, by nonce

    @contextmanager
    def turn(self, owner: str, give_up: GiveUp, queued: Queued) -> Iterator[Turn]:
        """Wait for a turn of `owner` and hold it during the body, unless `give_up` says so before it comes.

        Raises: `conflict` when nobody can look at the line, because a process is stopped that does.
        """
        ticket, held = self._enter(owner)
        try:
            yield Turn(ticket.running or self._wait(ticket, give_up, queued), held)
        finally:
            self._leave(ticket, held)

    def tickets(self) -> list[Ticket]:
        """All that are alive. The files of the others are removed."""
        with self._looking():
            return self._alive()

    def _enter(self, owner: str) -> tuple[Ticket, int]:
        with self._looking():
            others = self._alive()
            ticket = draw(others, owner, secrets.token_hex(8))
            rivals = [t for t in others if self._looks(t)]
            ticket = replace(ticket, running=may_run(ticket, [*rivals, ticket], self.parallel))
            held, beside = make_claimed(self.folder / ticket.name)
            beside.rename(self.folder / ticket.name)
        with self._changed:
            self._waiting.append(ticket)
        return ticket, held

    def _leave(self, ticket: Ticket, held: int) -> None:
        for running in (True, False):
            with suppress(OSError):
                (self.folder / replace(ticket, running=running).name).unlink()
        os.close(held)
        self._pass_on(ticket)

    def _pass_on(self, ticket: Ticket) -> None:
        """It waits no more, or runs no more: whoever is the first of this process now looks at once."""
        with self._changed:
            self._waiting[:] = [t for t in self._waiting if t.nonce != ticket.nonce]
            self._changed.notify_all()

    def _wait(self, ticket: Ticket, give_up: GiveUp, queued: Queued) -> bool:
        told = 0
        while not give_up():
            position = self._known_position(ticket) or self._look(ticket)
            if position != told:
                queued(position)
                told = position
            if position == 0:
                self._pass_on(ticket)
                return True
            self._pause(min(SLOWEST_LOOK_S, LOOK_S * position), give_up)
        return False

    def _pause(self, seconds: float, give_up: GiveUp) -> None:
        """Until the next look, or a change in this process, or a reason to give up."""
        ends_at = time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0 and not give_up():
            with self._changed:
                if self._changed.wait(min(ASK_S, left_s)):
                    return

    def _known_position(self, ticket: Ticket) -> int:
        """Position of a ticket that has another of this process before it, which looks for both; 0: look yourself."""
        with self._changed:
            first = in_line(self._waiting)[0]
            return 0 if first.nonce == ticket.nonce else self._positions.get(ticket.nonce, 0)

    def _look(self, ticket: Ticket) -> int:
        """The position in the line, or 0 after taking the turn. Raises: `internal` when somebody deletes tickets."""
        with self._looking():
            found = self._alive()
            positions = {t.nonce: n for n, t in enumerate(in_line(found), 1)}
            if ticket.nonce not in positions:
                raise SandboxError(
                    ErrorCode.INTERNAL,
                    "The place in the line of waiting checks was taken away",
                    hint="Somebody deleted files in `repositories/turns` of the home: run the check again.",
                )
            if may_run(ticket, [t for t in found if self._looks(t)], self.parallel):
                (self.folder / ticket.name).rename(self.folder / replace(ticket, running=True).name)
                return 0
        with self._changed:
            self._positions.clear()
            self._positions.update(positions)
        return positions[ticket.nonce]

    def _looks(self, ticket: Ticket) -> bool:
        """Whether the owner of a ticket is awake: the time of the file says when it was last, and we say it for ours.

        One who is stopped would stop everybody behind him. Wrong clocks cost no more than the order, for a moment.
        """
        path = self.folder / ticket.name
        try:
            age_s = time.time() - path.stat().st_mtime
            if self._is_ours(ticket) and age_s > ASLEEP_S / 8:
                os.utime(path)
        except FileNotFoundError:
            return False
        return self._is_ours(ticket) or age_s < (AT_WORK_ASLEEP_S if ticket.running else ASLEEP_S)

    def _is_ours(self, ticket: Ticket) -> bool:
        """Whether a thread of this process waits with it."""
        with self._changed:
            return any(t.nonce == ticket.nonce for t in self._waiting)

    def _alive(self) -> list[Ticket]:
        """Those whose owners live; the files of the others go. The caller holds the line's lock."""
        names = [path.name for path in self.folder.iterdir()]
        found = [ticket for name in names if (ticket := parse_ticket(name)) is not None]
        return [ticket for ticket in found if not remove_abandoned(self.folder / ticket.name)]

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Hold the line's lock, for a look."""
        lock = os.open(self.folder / "line.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _acquire(lock)
            yield
        finally:
            os.close(lock)


def _acquire(lock: int) -> None:
    ends_at, (pause_s, longest_s) = time.monotonic() + _LOCK_WAIT_S, _LOCK_PAUSES_S
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() > ends_at:
            raise SandboxError(
                ErrorCode.CONFLICT,
                "The line of waiting checks stays locked",
                hint="Is a `sandbox` process stopped (state T in `ps`)? Continue or end it.",
            )
        time.sleep(pause_s)
        pause_s = min(longest_s, 2 * pause_s)
