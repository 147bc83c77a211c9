"""The `sandbox` command: parse input, call one use-case, print. Slow imports happen only when needed."""

from __future__ import annotations

from sandbox.cli.app import main

__all__ = ["main"]
