"""What a worker of a cluster can do."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import NonNegativeInt, PositiveInt

from sandbox.models.model import Model


class HostCapabilities(Model):
    """What a host can do. `arch`: as in names of image platforms, `amd64`. `cgroup`: version of control groups; empty:
    the engine has none. `memory_bytes`: what all guests together may use. `runtimes`: of the engine, as the policy
    allows. `labels`: given by the operator.
    """

    arch: str
    cgroup: str = ""
    cpus: PositiveInt
    memory_bytes: NonNegativeInt
    runtimes: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
