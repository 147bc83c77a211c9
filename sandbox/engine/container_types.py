"""What the protocol of an engine takes and returns about containers. Plain types: no engine, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from sandbox.engine.beside import Beside
from sandbox.engine.cgroups import Counters
from sandbox.engine.pid1_messages import Command
from sandbox.engine.sample_series import ReadDiskUsed, find_no_disk
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Pressure, UsageSample, Verdict

OutputSink = Callable[[bytes], None]

STOP_CHECK_INTERVAL_S = 0.25
"""Longest time between two calls of a `StopCondition`."""

StopCondition = Callable[[], Verdict | None]
"""Called while a guest runs, from the thread that waits for it. Returns the verdict to stop it with now, or None."""

CommandBuilder = Callable[[list[str]], Command]
"""Builds a check's command once the container's own environment is known."""


Surround = Callable[[str], AbstractContextManager[None]]
"""Called with the id of a verified guest; what it returns is entered before the check starts and left at its end."""


def surround_with_nothing(_container_id: str) -> AbstractContextManager[None]:
    """A `Surround` of a check that is alone in its network namespace."""
    return nullcontext()


def never_stop() -> Verdict | None:
    """A `StopCondition` that is never met: only the deadline ends the guest."""
    return None


@dataclass(frozen=True)
class Streams:
    """Receivers of the guest's output, called for each chunk from a separate thread."""

    stdout: OutputSink
    stderr: OutputSink


@dataclass(frozen=True)
class ContainerExit:
    """How a guest ended, according to the engine and the kernel. `oom_killed`: the kernel killed any of its processes.

    `signal`: the signal that killed its command, if known. `stop_verdict`: why it was stopped before its deadline.
    `report_missing`: it ended without its supervisor's report. `leftover_processes`: how many processes were killed
    after the command had ended. `memory_left_bytes`: what the guest held in memory after that. `pressure`: None if
    unknown. `host_out_of_memory`: a process was killed, and not because of the guest's own limit. `samples`: usage over
    time, empty if unknown.
    """

    exit_code: int | None
    oom_killed: bool
    timed_out: bool
    started_at: datetime
    wall_time_s: float
    counters: Counters
    signal: int | None = None
    stop_verdict: Verdict | None = None
    report_missing: bool = False
    leftover_processes: int | None = None
    memory_left_bytes: int | None = None
    pressure: Pressure | None = None
    host_out_of_memory: bool = False
    samples: tuple[UsageSample, ...] = ()


@dataclass(frozen=True)
class NetworkMember:
    """A guest in a network that several share: its uid on this host, and its limit on memory."""

    uid: int
    memory_bytes: int


@dataclass(frozen=True)
class Neighbours:
    """The other guests in a guest's network: the limits on memory of all of them, and of those with its uid."""

    memory_bytes: int = 0
    same_uid_bytes: int = 0


ALONE = Neighbours()


def find_neighbours(member: NetworkMember, others: Iterable[NetworkMember]) -> Neighbours:
    """Pure."""
    limits = [(other.memory_bytes, other.uid == member.uid) for other in others]
    return Neighbours(sum(size for size, _ in limits), sum(size for size, is_same in limits if is_same))


@dataclass(frozen=True)
class SupervisedCheck:
    """One check in a guest: its command, the receivers of its output, its deadline and stop condition.

    `max_left_bytes`: a guest that holds more in memory afterwards is not kept; None: no limit.
    `surround`: what runs beside the check; its time is not the check's. `beside`: steps that are taken in its own guest
    while it runs; it is killed after the last of them. `disk_used`: what its files hold, for the samples.
    `neighbours`: who else has sockets in its network.
    """

    build_command: CommandBuilder
    streams: Streams
    deadline_s: float
    stop_condition: StopCondition
    max_left_bytes: int | None = None
    surround: Surround = surround_with_nothing
    beside: Beside | None = None
    disk_used: ReadDiskUsed = find_no_disk
    neighbours: Neighbours = ALONE


@dataclass(frozen=True)
class ContainerSummary:
    """A container as the engine lists it. `mount_sources`: the host paths that are mounted in it. `created_at`: None if
    the engine does not say it.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    running: bool
    mount_sources: tuple[str, ...]
    created_at: datetime | None = None


@dataclass(frozen=True)
class ProbeContainer:
    """A container that only tests a mount: its name, any local image, and labels for the cleanup if this process is
    killed.
    """

    name: str
    image: str
    labels: dict[str, str]
