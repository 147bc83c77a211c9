"""The first work of a controller: say that we are here, and tidy up behind those that were killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.store.presence import absent
from sandbox.workbench.lazy import Lazy
from sandbox.workbench.parts import Parts

if TYPE_CHECKING:
    from sandbox.workbench import reconciling
else:  # loaded when a controller was killed (docs/adr/0003)
    reconciling = Lazy("sandbox.workbench.reconciling")


def at_work(parts: Parts) -> None:
    """Called by all that changes something; costs a look at one directory, the first time."""
    presence = parts.presence
    if presence.has_looked:
        return
    presence.has_looked = True
    if any(not dead.is_left for dead in absent(parts.home.presence)):
        reconciling.after_a_kill(parts)
