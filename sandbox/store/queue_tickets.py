"""The order of the run queue: which check runs next. Pure; `run_queue` has the files.

Theory. A ticket's round is fixed when it is drawn: one more than the round of its owner's last waiting ticket, and at
least the round after the one being served. Tickets are served by round, then by number. So an owner with thirty checks
has one in each of thirty rounds, and another owner's first check waits for at most one more of them (start-time fair
queueing with equal weights). The head of the queue stays the head: no later ticket gets an earlier round, also not
while the head waits for memory and a smaller check could run.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

MIB = 1024**2
_NAME = lazy_pattern(r"([wr])-(\d{8})-(\d{12})-([0-9a-f]{16})-(?:m(\d{1,9})-)?([a-z0-9][a-z0-9._-]{0,199})")


@dataclass(frozen=True)
class Ticket:
    """One check that runs or waits. `number`: the order in which tickets are drawn. `memory_mib`: what it may use."""

    running: bool
    round: int
    number: int
    nonce: str
    owner: str
    memory_mib: int = 0

    @property
    def name(self) -> str:
        """The name of the ticket's file."""
        state = "r" if self.running else "w"
        return f"{state}-{self.round:08}-{self.number:012}-{self.nonce}-m{self.memory_mib}-{self.owner}"


def parse_ticket(name: str) -> Ticket | None:
    """Parse a ticket from its file's name; None for any other file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    state, round_, number, nonce, memory, owner = found.groups()
    return Ticket(state == "r", int(round_), int(number), nonce, owner, int(memory or 0))


def waiting_in_order(tickets: Sequence[Ticket]) -> list[Ticket]:
    """The waiting tickets, next first."""
    return sorted((t for t in tickets if not t.running), key=lambda t: (t.round, t.number))


def draw_ticket(tickets: Sequence[Ticket], owner: str, nonce: str, memory_mib: int = 0) -> Ticket:
    """A new ticket behind `tickets`, which are all live ones. Pure."""
    waiting = waiting_in_order(tickets)
    served = max((t.round for t in tickets if t.running), default=0)
    current = max(served, waiting[0].round - 1 if waiting else 0)
    last = max((t.round for t in waiting if t.owner == owner), default=0)
    number = max((t.number for t in tickets), default=0) + 1
    return Ticket(False, max(current, last) + 1, number, nonce, owner, memory_mib)


def may_run(ticket: Ticket, tickets: Sequence[Ticket], parallel: int) -> bool:
    """Whether a waiting ticket may run now, memory aside. Pure."""
    running = sum(t.running for t in tickets)
    return running < parallel and waiting_in_order(tickets)[0].nonce == ticket.nonce


def sum_memory(tickets: Sequence[Ticket]) -> int:
    """The bytes of memory that these checks may use. Pure."""
    return sum(t.memory_mib for t in tickets) * MIB


def round_up_to_mib(size: int) -> int:
    """Bytes as whole MiB. Pure."""
    return -(-size // MIB)
