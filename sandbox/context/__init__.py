"""Orientation in a repository: the envelope (what is here) and the map (which symbols matter)."""

from __future__ import annotations

from sandbox.context.envelope import describe

__all__ = ["describe"]
