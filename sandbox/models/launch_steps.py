"""How a launched application is known to be up, probed and stopped: the part of `[launch]` that a verdict binds."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

from sandbox.models.ids import SimpleName
from sandbox.models.model import Model

RUN_TOKEN = "<run>"  # noqa: S105  # a placeholder, no secret
ARTIFACT_TOKEN = "<artifact>"  # noqa: S105

MAX_PROBES = 32


def _require_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


class LaunchReady(Model):
    """When the application is up: one of `file` (a regular file of the guest), `line` (a regular expression for a line
    of its output), `port` (of 127.0.0.1) and `argv` (a command that ends with 0), within `deadline_s`.
    """

    file: str = ""
    line: str = Field(default="", max_length=500)
    port: int | None = Field(default=None, ge=1, le=65535)
    argv: tuple[str, ...] = ()
    deadline_s: PositiveFloat = Field(default=30.0, le=3600)

    _check_line = field_validator("line")(_require_expression)

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if sum((bool(self.file), bool(self.line), self.port is not None, bool(self.argv))) != 1:
            raise ValueError("'ready' needs one of file, line, port and argv")
        return self


class LaunchStop(Model):
    """How the application is stopped: `signal`, then it must end within `deadline_s`, with `exit_code`; 128 plus the
    number of the signal for one that it does not handle.
    """

    signal: Literal["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] = "TERM"
    deadline_s: PositiveFloat = Field(default=10.0, le=600)
    exit_code: int = Field(default=0, ge=0, le=255)


class LaunchProbe(Model):
    """A command that runs in the guest while the application is up. It passes if it ends with `exit_code` within
    `deadline_s`, its output matches `output`, and does not match `no_output` (searched in the first 256 KiB of stdout).

    `artifact`: the name of a file that it leaves at `<artifact>`, kept beside the logs, at most `artifact_bytes`.
    """

    id: SimpleName
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    exit_code: int = Field(default=0, ge=0, le=255)
    output: str = Field(default="", max_length=2000)
    no_output: str = Field(default="", max_length=2000)
    deadline_s: PositiveFloat = Field(default=10.0, le=3600)
    artifact: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")
    artifact_bytes: int = Field(default=4 * 1024**2, ge=1, le=64 * 1024**2)

    _check_patterns = field_validator("output", "no_output")(_require_expression)


class LaunchSteps(Model):
    """What happens while the application runs. `soak_s`: how long it must stay up after the probes."""

    ready: LaunchReady
    soak_s: NonNegativeFloat = Field(default=2.0, le=3600)
    stop: LaunchStop = LaunchStop()
    probes: tuple[LaunchProbe, ...] = Field(default=(), max_length=MAX_PROBES)

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        names = [probe.id for probe in self.probes]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several probes are named {', '.join(doubled)}")
        return self

    @property
    def longest_s(self) -> float:
        """How long all phases may take together."""
        return self.ready.deadline_s + sum(p.deadline_s for p in self.probes) + self.soak_s + self.stop.deadline_s
