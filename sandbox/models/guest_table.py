"""Guests that exist now, and what they use of their limits."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sandbox.models.ids import CheckId
from sandbox.models.model import Model


class GuestKind(StrEnum):
    """What a guest is for."""

    TASK = "task"  # kept between the checks of a task
    SPARE = "spare"  # made ahead, for a task that will take it over
    CLEAN_ROOM = "clean-room"
    SERVICE = "service"
    FETCH = "fetch"  # downloads packages; runs no foreign code
    OTHER = "other"  # of ours, such as the one that lists symbols


class Guest(Model):
    """One guest. None: unknown, or not counted on this host; for a limit also that there is none.

    `busy`: a check runs in it; otherwise it is kept for the next one, or it has ended. `owner`: its task or repository.
    `tenant`: for whom it was made. `check_ids`: the checks that run in it. `memory_bytes`: what it holds, without the
    page cache. `cpus_used`: CPU time for each second since the look before. `age_s`: time since it was created.
    """

    container: str
    kind: GuestKind
    busy: bool
    owner: str | None = None
    run_id: str | None = None
    check_ids: tuple[CheckId, ...] = ()
    service: str | None = None
    tenant: str | None = None
    age_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_time_s: float | None = None
    cpus_used: float | None = None
    cpus_limit: float | None = None
    pids: int | None = None
    pids_limit: int | None = None


class QueuedCheck(Model):
    """A check that waits for a slot. `owner`: its task or repository, or the layer that it builds. `memory_bytes`: what
    it may use, with its services, for which it may have to wait.
    """

    owner: str
    memory_bytes: int


class GuestTable(Model):
    """All guests of a home at one time, those with a running check first. `waiting`: how many checks wait for a slot;
    `queue`: these, the next one first.

    `memory_bytes`: what the guests of all homes of this host hold; `memory_limit_bytes`: the bound for all of them.
    """

    at: datetime
    guests: tuple[Guest, ...]
    waiting: int
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    queue: tuple[QueuedCheck, ...] = ()
