"""The shape of `inputs.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Edit(_Shape):
    """An edit that breaks `check`, and its repair: `before` becomes `broken`, then `repaired`."""

    about: str
    message: str
    check: str
    path: str
    before: str
    broken: str
    repaired: str


class Project(_Shape):
    """One pinned archive. `file`: a name in the package's index page, or a path in the Debian archive."""

    name: str
    version: str
    about: str
    source: Literal["pypi", "debian"]
    file: str
    sha256: str
    profile: str
    transport: Literal["https", "ssh"]
    leave_out: tuple[str, ...] = ()
    edit: Edit | None = None


class _Inputs(_Shape):
    project: tuple[Project, ...]


def load_projects() -> tuple[Project, ...]:
    """The projects in the order they are shown."""
    return _Inputs.model_validate(tomllib.loads((Path(__file__).parent / "inputs.toml").read_text())).project
