"""What an entry of the suite is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandbox.attack.harness.host import Host
from sandbox.attack.harness.scene import Scene


def _nothing(_scene: Scene) -> None:
    """Nothing to prepare."""


@dataclass(frozen=True)
class Entry:
    """One attack. All of its functions get the same scene, in this order.

    `needs`: reasons to skip it on this host, empty where there is none. `plant`: what the attacker prepared.
    `control`: a careless command is hit, or it raises `Void`; returns what was hit. `attack`: the product at work;
    returns what it did, or raises `GotThrough`. Effects that no answer shows are looked for by the runner.
    `scene`: `task` begins with a task, `bare` without one; `guests` is one scene for all entries about containers.
    `needs_engine`: it runs a container although its scene is its own.
    """

    id: str
    title: str
    tried: str
    control: Callable[[Scene], str]
    attack: Callable[[Scene], str]
    plant: Callable[[Scene], None] = _nothing
    needs: tuple[Callable[[Host], str], ...] = ()
    scene: Literal["task", "bare", "guests"] = "task"
    needs_engine: bool = False

    @property
    def section(self) -> str:
        """The letter of its section in docs/threats.md."""
        return self.id[0]
