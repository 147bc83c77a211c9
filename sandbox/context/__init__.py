"""Orientation in a repository: the envelope (its files) and the map (its most important symbols)."""

from __future__ import annotations

from sandbox.context.envelope import build_envelope

__all__ = ["build_envelope"]
