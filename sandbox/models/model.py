"""Base of every shape we own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of every shape we own: immutable, typos fail. Validators are built on first use: commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
