"""What `rows.toml` declares: systems, rows, and the columns that a row has."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

ROWS = Path(__file__).with_name("rows.toml")


class Column(StrEnum):
    """What is measured in a row, in this order."""

    DOCTOR = "doctor"
    MAIN_JOB = "main job"
    TASK_LIFE = "task life"
    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"
    TIME = "time"
    DISK = "disk"
    OUTPUT = "output"
    KILL = "kill and reconcile"
    UNITS = "units of systemd"
    SELINUX = "selinux"  # before hostile guests: they are denied more than others, as they must be
    CONTRACT = "executor contract"
    ATTACKS = "attacks"


REFUSED_COLUMNS = (Column.DOCTOR, Column.MAIN_JOB)
"""What is measured where the engine must be refused."""


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Machine(_Declared):
    """The virtual machine of every row."""

    cpus: PositiveInt
    memory_mib: PositiveInt
    disk_mib: PositiveInt


class Architecture(StrEnum):
    """Of a machine's processor, as Debian names it. `architectures.py` has what differs."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class System(_Declared):
    """A root file system. `suite`: of Debian's archive. `packages`: beside those that every system has.

    `selinux`: in place of AppArmor, and the engine confines guests by it. It is in force for guests alone
    (`guest_policy.py`).
    """

    title: str
    suite: str
    packages: tuple[str, ...]
    selinux: bool = False
    architecture: Architecture = Architecture.AMD64


class Engine(StrEnum):
    """What serves Docker's API to the product."""

    DOCKER = "docker"
    DOCKER_ROOTLESS = "docker-rootless"
    PODMAN = "podman"
    PODMAN_ROOTLESS = "podman-rootless"


class Row(_Declared):
    """One line of the table. `user`: who runs the product. `refused`: what doctor and every job must
    say of the engine, instead of doing anything.
    """

    system: str
    engine: Engine
    user: str
    refused: str = ""


class Matrix(_Declared):
    """Everything in `rows.toml`."""

    machine: Machine
    systems: dict[str, System]
    rows: dict[str, Row]

    @model_validator(mode="after")
    def _require_systems(self) -> Self:
        unknown = {row.system for row in self.rows.values()} - self.systems.keys()
        if unknown:
            raise ValueError(f"no such system: {', '.join(sorted(unknown))}")
        return self

    def columns(self, name: str) -> tuple[Column, ...]:
        """The columns to measure in a row."""
        row = self.rows[name]
        if row.refused:
            return REFUSED_COLUMNS
        return tuple(Column if self.systems[row.system].selinux else (c for c in Column if c is not Column.SELINUX))

    def title(self, name: str) -> str:
        """What the page calls a row."""
        row = self.rows[name]
        user = {"root": "as root"}.get(row.user, "as a user" if row.engine != Engine.DOCKER else "in the group docker")
        return f"{self.systems[row.system].title}, {row.engine.replace('-', ', ')}, {user}"


def load_matrix(path: Path = ROWS) -> Matrix:
    """Raises: pydantic's `ValidationError`, `TOMLDecodeError`."""
    return Matrix.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
