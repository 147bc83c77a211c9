"""Layers of dependencies that are old, or too many, and trees that are no layer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from sandbox.config import LayerSettings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.models.layers import Layer
from sandbox.store.layers import LayerStore
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler

_REPLACED = timedelta(hours=1)  # a check that was given the layer a moment ago has not begun to use it yet


def find_unused_layers(reconciler: Reconciler) -> Iterator[Finding]:
    """Layers past `layers.keep_days` or `layers.max_bytes`, or that later builds replaced; what builds and removals
    left. None that checks use.
    """
    store = LayerStore(reconciler.services.home)
    for layer, note in choose_unused(store, reconciler.services.settings.layers):
        remove = partial(remove_if_unused, store, layer, store.find_last_use(layer))
        yield Finding("layer", layer.key[:12], remove, note=note, bytes=layer.bytes)
    for tree in store.list_leftovers():
        yield Finding("layer", tree.name, partial(_remove_leftover, store, tree), note="without a record")


def choose_unused(store: LayerStore, settings: LayerSettings) -> Iterator[tuple[Layer, str]]:
    """The layers to remove, and why. Those that were used last are kept first."""
    now = datetime.now(UTC)
    oldest, total = now - timedelta(days=settings.keep_days), 0
    for layer in store.list_layers():
        total += layer.bytes
        if store.find_last_use(layer) < oldest:
            yield layer, f"not used for {settings.keep_days:g} days"
        elif store.find_last_use(layer) < now - _REPLACED and store.is_replaced(layer):
            yield layer, "its build ran short of something, and a later build replaced it"
        elif total > settings.max_bytes:
            yield layer, "the layers have more than layers.max_bytes together"


def remove_layer(store: LayerStore, layer: Layer) -> None:
    """Remove a layer. Raises: `conflict` while checks use it."""
    tree = store.remove(layer)
    if tree is None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"Checks use the layer {layer.key[:12]}",
            hint="Try again when they have ended: `sandbox top` lists them.",
        )
    remove_tree(tree)


def remove_if_unused(store: LayerStore, layer: Layer, last_use: datetime) -> str | None:
    """Remove a layer, unless it was used since it was chosen: then this returns None. Raises: as `remove_layer`."""
    if store.find_last_use(layer) != last_use:
        return None
    remove_layer(store, layer)
    return ""


def _remove_leftover(store: LayerStore, tree: Path) -> str | None:
    if not store.claim_leftover(tree):
        return None
    remove_tree(tree)
    return ""
