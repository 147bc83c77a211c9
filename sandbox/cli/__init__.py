"""The `sandbox` command: parse input, call one use-case, print. Nothing heavy is imported before it is needed."""

from __future__ import annotations

from sandbox.cli.app import main

__all__ = ["main"]
