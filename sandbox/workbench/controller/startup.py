"""Before the first change that a controller makes: clean up after controllers that were killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.lazy_module import LazyModule
from sandbox.store.liveness import list_dead_controllers
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.workbench.controller import release_watch
else:
    release_watch = LazyModule("sandbox.workbench.controller.release_watch")


def ensure_recovered(services: Services) -> None:
    """Every operation that changes something calls this. The first call lists two directories; later calls are free."""
    presence = services.presence
    if presence.has_reconciled:
        return
    presence.has_reconciled = True
    if any(not dead.is_marked_failed for dead in list_dead_controllers(services.home.liveness)):
        services.surface.on_killed_controller(services)
    if services.home.releases("x").parent.is_dir():  # else no release of this home can wait, and none is imported
        release_watch.take_over_releases(services)
