"""A module that is imported when its first attribute is read.

The rule for lazy imports, and which modules they are for, is in docs/architecture.md, "What a command loads".
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


class LazyModule:
    """Stands for a module; the type checker sees the real one, in the `TYPE_CHECKING` block of the importing module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = sys.modules.get(self._name)
        if found is None or getattr(found.__spec__, "_initializing", False):  # another thread imports it: wait for it
            found = importlib.import_module(self._name)
        return getattr(found, attribute)
