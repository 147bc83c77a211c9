"""The shape of `inputs.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from devtools.published import Archive


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


class Project(Archive):
    """One pinned archive, and how the story uses it."""

    about: str
    profile: str
    transport: Literal["https", "ssh"]
    edit: Edit | None = None


class _Inputs(_Shape):
    project: tuple[Project, ...]


def load_projects() -> tuple[Project, ...]:
    """The projects in the order they are shown."""
    return _Inputs.model_validate(tomllib.loads((Path(__file__).parent / "inputs.toml").read_text())).project
