"""Workers of a cluster: what each can do, and which tasks they have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field, PositiveInt, StringConstraints

from sandbox.models.model import Model, SparseModel

WorkerId = Annotated[str, StringConstraints(pattern=r"^worker-[0-9a-f]{16}$")]

AnnouncedWord = Annotated[str, StringConstraints(pattern=r"^[!-~]{0,100}$")]
"""Printable ASCII: a worker says it, and people, models and Prometheus read it."""

AnnouncedCount = Annotated[int, Field(ge=0, le=1_000_000)]
"""Bounded, because a sum of whole numbers without a bound is no float."""


class HostCapabilities(Model):
    """What a host can do. `arch`: as in names of image platforms, `amd64`. `cgroup`: version of control groups; empty:
    the engine has none. `memory_bytes`: what all guests together may use. `runtimes`: of the engine, as the policy
    allows. `labels`: given by the operator.
    """

    arch: AnnouncedWord
    cgroup: AnnouncedWord = ""
    cpus: Annotated[AnnouncedCount, Field(ge=1)]
    memory_bytes: Annotated[int, Field(ge=0, le=2**60)]
    runtimes: tuple[AnnouncedWord, ...] = ()
    labels: Mapping[AnnouncedWord, AnnouncedWord] = {}


class PlaceState(StrEnum):
    """Whether a worker has a task. `unknown`: the cluster did not say within seconds."""

    ON_WORKER = "on_worker"
    WAITING = "waiting"
    UNKNOWN = "unknown"


class TaskPlace(SparseModel):
    """Where a task of a cluster is. Of one that waits for a worker with a free slot, `place` is about its place in the
    line, and `workers` how many there are. `loss`: what it lost when its last worker was lost, and when.
    """

    state: PlaceState
    worker: WorkerId | None = None
    place: PositiveInt | None = None
    workers: AnnouncedCount | None = None
    loss: str | None = None
    lost_at: AwareDatetime | None = None


def select_waiting(places: Mapping[str, TaskPlace]) -> dict[str, TaskPlace]:
    """Those that no worker has, as far as the cluster says."""
    return {task_id: place for task_id, place in places.items() if place.state is not PlaceState.ON_WORKER}
