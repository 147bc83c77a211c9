"""One entry of the suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.scene import Scene


def _plant_no_files(_scene: Scene) -> None:
    """Prepare no files."""


@dataclass(frozen=True)
class AttackEntry:
    """One attack. All of its functions get the same scene, in this order.

    `needs`: each returns a reason to skip the entry on this host, or ''. `plant`: prepares what the attacker prepares.
    `control`: runs a careless command; returns what was hit, or raises `Void`. `attack`: runs the product; returns what
    it did, or raises `GotThrough`. The runner looks for effects that no answer shows.
    `scene`: `task` begins with a task, `bare` without one; all entries about containers share one scene, `guests`.
    `needs_engine`: the entry runs a container although its scene is not `guests`.
    """

    id: str
    title: str
    tried: str
    control: Callable[[Scene], str]
    attack: Callable[[Scene], str]
    plant: Callable[[Scene], None] = _plant_no_files
    needs: tuple[Callable[[AttackHost], str], ...] = ()
    scene: Literal["task", "bare", "guests"] = "task"
    needs_engine: bool = False

    @property
    def section(self) -> str:
        """The letter of its section in docs/threats.md."""
        return self.id[0]
