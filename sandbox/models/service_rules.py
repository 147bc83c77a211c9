"""Services: programs such as a database that run beside a check, in its network namespace (docs/services.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, StringConstraints

from sandbox.models.checks import MAX_TIMEOUT_S, Environment, Limits, require_enough
from sandbox.models.ids import CheckId
from sandbox.models.model import Model

ServiceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
"""Part of container and file names."""


class ServiceLimits(Limits):
    """What one service may use, beside the limits of the check. All its files are in memory and count there."""

    memory_bytes: PositiveInt = 1024**3
    cpus: PositiveFloat = 1.0


class ServiceRule(Model):
    """`[[service]]` of a profile: a program that is started before a check and found at 127.0.0.1 by it.

    `argv`: stays in the foreground; empty: the image's own command. `ready`: run in the service's guest until it
    succeeds, for at most `ready_s` seconds. `port`: where it listens, for people and to find conflicts. `checks`: those
    that get it; empty: all of the profile. `check_env`: variables of these checks, unless a check sets them itself.
    """

    name: ServiceName
    image: str
    argv: tuple[str, ...] = ()
    env: Environment = Field(default_factory=dict)
    ready: tuple[str, ...] = Field(min_length=1)
    ready_s: PositiveFloat = Field(default=60.0, le=MAX_TIMEOUT_S)
    port: int = Field(ge=1024, le=65535)
    limits: Annotated[ServiceLimits, AfterValidator(require_enough)] = ServiceLimits()
    checks: tuple[CheckId, ...] = ()
    check_env: Environment = Field(default_factory=dict)

    def serves(self, check_id: str) -> bool:
        """Whether this check gets the service."""
        return not self.checks or check_id in self.checks


class ServiceSetup(Model):
    """A service with all that a verdict depends on: its image's digest, its command, and the limits in force."""

    rule: ServiceRule
    image_digest: str
    argv: tuple[str, ...] = Field(min_length=1)


class ServiceRun(Model):
    """A service of one run. `ready_after_s`: until its `ready` command succeeded. `ended_early`: it was not running any
    more when the check ended, so the verdict may be its fault. `output_bytes`: what it wrote, both streams together.
    """

    name: ServiceName
    image_digest: str
    ready_after_s: float
    ended_early: bool
    output_bytes: int
    limits: ServiceLimits
