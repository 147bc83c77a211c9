"""The version of this package: the one place where it is written."""

from __future__ import annotations

__version__ = "0.1.0"
