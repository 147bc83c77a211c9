"""The scene of all entries about containers: one hostile repository, probed in a guest and in a soft container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.attack.scene import Scene
    from sandbox.attack.site import Site


@dataclass
class Guests:
    """What the entries about containers share."""

    site: Site
    scene: Scene
