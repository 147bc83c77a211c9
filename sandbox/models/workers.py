"""What a worker of a cluster can do, and what a task may require of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, StringConstraints

from sandbox.models.model import Model

CAPABILITIES = ("arch", "cgroup", "cpus", "memory", "runtime")
"""What a task may require beside labels; no label has one of these names."""

MAX_LABELS = 16

LabelKey = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]


def split_pairs(value: object) -> object:
    """`a=b,c=d` as a mapping, so that an environment variable can say it; anything else unchanged.

    Raises: ValueError for a part without `=`, and for a name that is there twice.
    """
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        key, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"'{part[:80]}' is not NAME=VALUE")
        if key in found:
            raise ValueError(f"'{key[:80]}' is there twice")
        found[key] = text
    return found


Labels = Annotated[dict[LabelKey, LabelValue], BeforeValidator(split_pairs), Field(max_length=MAX_LABELS)]
"""Names and values chosen by the operator, or what a task requires of a worker: labels and `CAPABILITIES`."""


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
