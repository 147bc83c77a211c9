"""The ecosystems that have layers of packages."""

from __future__ import annotations

import importlib
from typing import cast

from sandbox.dependencies.layer_plan import EcosystemSteps
from sandbox.models.layers import LayerEcosystem

_MODULES: dict[LayerEcosystem, str] = {
    "python": "python_steps",
    "node": "node_steps",
    "rust": "rust_steps",
    "go": "go_steps",
    "perl": "perl_steps",
}
"""Loaded when they are asked for: one project seldom has more than one."""


def find_steps(ecosystem: LayerEcosystem) -> EcosystemSteps:
    """The steps of an ecosystem, which is the constant `STEPS` of its module."""
    module = importlib.import_module(f"sandbox.dependencies.{_MODULES[ecosystem]}")
    return cast("EcosystemSteps", module.STEPS)
