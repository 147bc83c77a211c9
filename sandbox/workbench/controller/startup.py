"""Before the first change that a controller makes: clean up after controllers that were killed."""

from __future__ import annotations

from sandbox.store.liveness import absent
from sandbox.workbench.controller.services import Parts


def at_work(services: Parts) -> None:
    """Every operation that changes something calls this. The first call lists one directory; later calls are free."""
    presence = services.presence
    if presence.has_looked:
        return
    presence.has_looked = True
    if any(not dead.is_left for dead in absent(services.home.presence)):
        services.surface.after_a_kill(services)
