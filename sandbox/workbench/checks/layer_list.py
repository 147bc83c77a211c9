"""Use-cases on the layers of a home: list, show, remove."""

from __future__ import annotations

from sandbox.models.layers import Layer, LayerDetails, LayerSummary, RemovedLayers
from sandbox.store.layers import LayerStore
from sandbox.store.records import not_found_error
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.unused_layers import remove_layer

_SHORTEST = 6  # characters of a key that are enough to name a layer


def list_layers(services: Services) -> tuple[LayerSummary, ...]:
    """All layers, the one used last first."""
    store = LayerStore(services.home)
    return tuple(
        LayerSummary(
            key=layer.key,
            ecosystem=layer.ecosystem,
            packages=len(layer.packages),
            bytes=layer.bytes,
            used_at=store.find_last_use(layer),
        )
        for layer in store.list_layers()
    )


def show_layer(services: Services, key: str) -> LayerDetails:
    """One layer, by its key or the beginning of it. Raises: `not_found`."""
    store = LayerStore(services.home)
    layer = _find(store, key)
    return LayerDetails(
        layer=layer, resolutions=tuple(store.list_resolutions(layer.key)), used_at=store.find_last_use(layer)
    )


def remove(services: Services, key: str) -> RemovedLayers:
    """Remove one layer; it is built again when it is needed. Raises: `not_found`; `conflict` while checks use it."""
    store = LayerStore(services.home)
    layer = _find(store, key)
    remove_layer(store, layer)
    return RemovedLayers(removed=(layer.key,), freed_bytes=layer.bytes)


def _find(store: LayerStore, key: str) -> Layer:
    known = store.list_layers()
    found = [layer for layer in known if layer.key.startswith(key)] if len(key) >= _SHORTEST else []
    if len(found) != 1:
        raise not_found_error("layer", key, [layer.key for layer in known], "`sandbox layers list` shows them.")
    return found[0]
