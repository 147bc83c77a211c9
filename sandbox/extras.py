"""The extras of this package: which modules a plain installation lacks."""

from __future__ import annotations

EXTRAS = {
    "fsspec": "fsspec",
    "opentelemetry.exporter": "otel",
    "opentelemetry.sdk": "otel",
    "sigstore": "sigstore",
    "temporalio": "temporal",
}
"""Module: the extra that brings it. The rest of `opentelemetry` comes with `mcp`."""


def find_extra(error: ModuleNotFoundError) -> str | None:
    """The extra that brings the missing module; None if a plain installation has it."""
    parts = (error.name or "").split(".")
    beginnings = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((EXTRAS[name] for name in beginnings if name in EXTRAS), None)
