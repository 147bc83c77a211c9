"""Use-cases on the layers of a home: list, show, build, remove."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.lazy_module import LazyModule
from sandbox.models import TaskStatus
from sandbox.models.layers import Layer, LayerDetails, LayerSummary, LayerUser, PreparedLayers, RemovedLayers
from sandbox.store.home import Home
from sandbox.store.layers import LayerStore
from sandbox.store.records import list_repositories, list_tasks, not_found_error
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.guest_setup import resolve_guest_setup
from sandbox.workbench.checks.layers import build_layers, find_owner_tree
from sandbox.workbench.checks.manifests import plan_layer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.unused_layers import remove_layer
from sandbox.workbench.tasks.approved_state import describe_owner, require_approved_state

if TYPE_CHECKING:
    from sandbox.dependencies import bill_of_materials
else:  # its library takes 0.3 s to load (docs/adr/0003)
    bill_of_materials = LazyModule("sandbox.dependencies.bill_of_materials")

_SHORTEST = 4  # characters of a key that are enough to name a layer


def list_layers(services: Services) -> tuple[LayerSummary, ...]:
    """All layers, the one used last first."""
    store, owners = LayerStore(services.home), _Owners(services.home)
    return tuple(_summarize(store, layer, owners) for layer in store.list_layers())


def show_layer(services: Services, key: str) -> LayerDetails:
    """One layer, by its key or the beginning of it. Raises: `not_found`."""
    store = LayerStore(services.home)
    layer = _find(store, key)
    return LayerDetails(
        layer=layer,
        resolutions=tuple(store.list_resolutions(layer.key)),
        used_at=store.find_last_use(layer),
        users=_Owners(services.home).find_users(store, layer),
    )


def write_bill_of_materials(services: Services, key: str) -> str:
    """The CycloneDX document of one layer, as JSON. Raises: `not_found`."""
    return bill_of_materials.write_bill_of_materials(_find(LayerStore(services.home), key))


def require_commit(services: Services, owner_id: str, expected_commit: str | None) -> None:
    """Raises: as `find_owner_tree`; `conflict` if its commit is not `expected_commit`, or its state if that is one."""
    _require_approved(services, owner_id, find_owner_tree(services, owner_id)[1].commit, expected_commit)


def _require_approved(services: Services, owner_id: str, commit: str, approved: str | None) -> None:
    require_approved_state("commit", commit, approved, lambda _: describe_owner(services.home, owner_id))


def build_for_owner(
    services: Services, owner_id: str, watch: Watch, expected_commit: str | None, *, refresh: bool
) -> PreparedLayers:
    """Build the layers that the manifests of a task's last commit, or of a repository's default branch, ask for, if
    they are missing; all with `refresh`.

    Raises: as `find_owner_tree` and `build_layers`; `conflict` for another commit than the expected one.
    """
    profile, tree = find_owner_tree(services, owner_id)
    _require_approved(services, owner_id, tree.commit, expected_commit)
    store, owners = LayerStore(services.home), _Owners(services.home)
    built = [
        layer
        for part in profile.parts
        for layer in build_layers(
            services, resolve_guest_setup(services, part, watch.building), part, tree, watch, refresh=refresh
        )
    ]
    return PreparedLayers(
        commit=tree.commit,
        layers=tuple(_summarize(store, layer, owners) for layer in built),
        refused=tuple(
            entry
            for part in profile.parts
            for rule in part.layers
            if (plan := plan_layer(tree.git, tree.tree, rule))
            for entry in plan.refused
        ),
    )


class _Owners:
    """The repositories of a home and their tasks, to say who of them used a layer."""

    def __init__(self, home: Home) -> None:
        self._repositories = {repository.id for repository in list_repositories(home)}
        self._tasks = {task.id: task for task in list_tasks(home)}

    def find_users(self, store: LayerStore, layer: Layer) -> tuple[LayerUser, ...]:
        """A closed task counts as its repository; what was removed does not count."""
        latest: dict[tuple[str, str | None], datetime] = {}
        for owner, used_at in store.list_users(layer.key).items():
            task = self._tasks.get(owner)
            repo_id = task.repo_id if task else owner
            if repo_id in self._repositories:
                user = repo_id, task.id if task and task.status is not TaskStatus.CLOSED else None
                latest[user] = max(used_at, latest.get(user, used_at))
        found = [LayerUser(repo_id=repo_id, task_id=task_id, used_at=at) for (repo_id, task_id), at in latest.items()]
        return tuple(sorted(found, key=lambda user: user.used_at, reverse=True))


def _summarize(store: LayerStore, layer: Layer, owners: _Owners) -> LayerSummary:
    users = owners.find_users(store, layer)
    return LayerSummary(
        key=layer.key,
        ecosystem=layer.ecosystem,
        packages=len(layer.packages),
        bytes=layer.bytes,
        built_at=layer.built_at,
        used_at=store.find_last_use(layer),
        repositories=tuple(dict.fromkeys(user.repo_id for user in users)),
        tasks=sum(user.task_id is not None for user in users),
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
