"""Where a check finds a Python layer. Apart from the steps that make one, which load much more. Pure."""

from __future__ import annotations

from collections.abc import Mapping

TARGET = "/sandbox-layers/python"
"""A relocatable virtual environment."""


def build_environment(path: str) -> Mapping[str, str]:
    """The variables of a check that has the layer. `path`: its PATH without the layer."""
    return {"VIRTUAL_ENV": TARGET, "PATH": f"{TARGET}/bin:{path}"}
