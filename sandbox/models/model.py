"""Base of every shape we own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, WithJsonSchema

HostPath = Annotated[Path, WithJsonSchema({"type": "string"})]
"""A path of the host. In schemas it is a string: `path` is no format of JSON Schema, and clients warn of it."""


class Model(BaseModel):
    """Base of every shape we own: immutable, typos fail. Validators are built on first use: commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
