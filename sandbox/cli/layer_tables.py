"""Layers of packages as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandbox.byte_sizes import format_bytes
from sandbox.cli.invocation import show_table
from sandbox.cli.time_format import format_for_listing
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.models.layers import LayerSummary, PreparedLayers


def show_layers(found: tuple[LayerSummary, ...]) -> None:
    """Print one row for each layer."""
    rows = [
        [
            layer.key[:12],
            layer.ecosystem,
            str(layer.packages),
            format_bytes(layer.bytes),
            format_for_listing(layer.built_at),
            format_for_listing(layer.used_at),
            _describe_users(layer),
        ]
        for layer in found
    ]
    show_table(["LAYER", "KIND", "PACKAGES", "SIZE", "BUILT", "USED", "USED BY"], rows)


def _describe_users(layer: LayerSummary) -> str:
    """The repository that used it last, and how many more there are."""
    if not layer.repositories:
        return "-"
    first, *others = layer.repositories
    more = f" and {len(others)} more" if others else ""
    tasks = f", {layer.tasks} task{'' if layer.tasks == 1 else 's'}" if layer.tasks else ""
    return f"{first}{more}{tasks}"


def show_prepared(found: PreparedLayers) -> None:
    """Print the layers of a commit, and the entries of its manifests that are not used."""
    show_layers(found.layers)
    for refused in found.refused:
        click.echo(f"refused, {refused.reason.value}: {one_line(refused.text)} ({one_line(refused.origin)})")
