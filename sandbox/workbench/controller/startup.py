"""The first operation of a controller that changes something: clean up after controllers that were killed."""

from __future__ import annotations

from sandbox.store.liveness import absent
from sandbox.workbench.controller.services import Parts


def at_work(parts: Parts) -> None:
    """Called by every operation that changes something; costs one listing of a directory, the first time."""
    presence = parts.presence
    if presence.has_looked:
        return
    presence.has_looked = True
    if any(not dead.is_left for dead in absent(parts.home.presence)):
        parts.surface.after_a_kill(parts)
