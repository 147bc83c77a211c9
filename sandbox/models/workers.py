"""What a worker of a cluster can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from sandbox.models.model import Model

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
