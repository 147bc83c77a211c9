"""Before the first change that a controller makes: clean up after controllers that were killed."""

from __future__ import annotations

from sandbox.store.liveness import list_dead_controllers
from sandbox.workbench.controller.services import Services


def ensure_recovered(services: Services) -> None:
    """Every operation that changes something calls this. The first call lists one directory; later calls are free."""
    presence = services.presence
    if presence.has_reconciled:
        return
    presence.has_reconciled = True
    if any(not dead.is_marked_failed for dead in list_dead_controllers(services.home.liveness)):
        services.surface.on_killed_controller(services)
