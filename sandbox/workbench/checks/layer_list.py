"""Use-cases on the layers of a home: list, show, build, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.lazy_module import LazyModule
from sandbox.models.layers import Layer, LayerDetails, LayerSummary, PreparedLayers, RemovedLayers
from sandbox.store.layers import LayerStore
from sandbox.store.records import find_task, not_found_error
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import resolve_guest_setup
from sandbox.workbench.checks.layers import build_layers, find_last_tree
from sandbox.workbench.checks.manifests import plan_layer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.unused_layers import remove_layer
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.tasks.approved_state import require_approved

if TYPE_CHECKING:
    from sandbox.dependencies import bill_of_materials
else:  # its library takes 0.3 s to load (docs/adr/0003)
    bill_of_materials = LazyModule("sandbox.dependencies.bill_of_materials")

_SHORTEST = 4  # characters of a key that are enough to name a layer


def list_layers(services: Services) -> tuple[LayerSummary, ...]:
    """All layers, the one used last first."""
    store = LayerStore(services.home)
    return tuple(_summarize(store, layer) for layer in store.list_layers())


def show_layer(services: Services, key: str) -> LayerDetails:
    """One layer, by its key or the beginning of it. Raises: `not_found`."""
    store = LayerStore(services.home)
    layer = _find(store, key)
    return LayerDetails(
        layer=layer, resolutions=tuple(store.list_resolutions(layer.key)), used_at=store.find_last_use(layer)
    )


def write_bill_of_materials(services: Services, key: str) -> str:
    """The CycloneDX document of one layer, as JSON. Raises: `not_found`."""
    return bill_of_materials.write_bill_of_materials(_find(LayerStore(services.home), key))


def require_commit(services: Services, task_id: str, expected_commit: str | None) -> None:
    """Raises: `not_found`; `conflict` if the task's last commit is not `expected_commit`."""
    require_approved("commit", find_task(services.home, task_id).head_commit, expected_commit)


def build_for_task(
    services: Services, task_id: str, watch: Watch, expected_commit: str | None, *, refresh: bool
) -> PreparedLayers:
    """Build the layers that the manifests of a task's last commit ask for, if they are missing; all with `refresh`.

    Raises: as `require_commit` and `build_layers`.
    """
    task = find_task(services.home, task_id)
    require_approved("commit", task.head_commit, expected_commit)
    profile, tree = load_task_profile(services, task), find_last_tree(services, task)
    store = LayerStore(services.home)
    built = [
        layer
        for part in profile.parts
        for layer in build_layers(
            services, resolve_guest_setup(services, part, watch.building), part, tree, watch, refresh=refresh
        )
    ]
    return PreparedLayers(
        commit=task.head_commit,
        layers=tuple(_summarize(store, layer) for layer in built),
        refused=tuple(
            entry
            for part in profile.parts
            for rule in part.layers
            if (plan := plan_layer(tree.git, tree.tree, rule))
            for entry in plan.refused
        ),
    )


def _summarize(store: LayerStore, layer: Layer) -> LayerSummary:
    return LayerSummary(
        key=layer.key,
        ecosystem=layer.ecosystem,
        packages=len(layer.packages),
        bytes=layer.bytes,
        used_at=store.find_last_use(layer),
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
