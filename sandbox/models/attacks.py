"""Attacks on this host: `sandbox doctor --attack`."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class AttackOutcome(StrEnum):
    """How an attack on this host ended. `void`: its control was not hit, so nothing is proven; `error`: we failed."""

    HELD = "held"
    GOT_THROUGH = "got_through"
    VOID = "void"
    SKIPPED = "skipped"
    ERROR = "error"


class AttackResult(Model):
    """One entry of `sandbox doctor --attack`. `tried`: what the product did on hostile ground.

    `control`: what the careless command suffered there; `seen`: what happened to the product, or why it was skipped.
    """

    id: str
    title: str
    section: str
    tried: str
    outcome: AttackOutcome
    control: str = ""
    seen: str = ""
    wall_time_s: float


class ThreatState(StrEnum):
    """What is known of a threat. `by_design`: what would be attacked is not there. `later`: not in this version."""

    TESTED = "tested"
    PARTLY = "partly"
    BY_DESIGN = "by design"
    LATER = "later"


class Threat(Model):
    """One entry of the list of threats, as `sandbox doctor --attack --explain` shows it.

    `attack`: one sentence. `stops`: the wall, empty where there is none yet. `control`: what a careless command
    suffers, empty unless the entry `ships`, that is, `sandbox doctor --attack` runs it on this host. `tests`: where it
    is tested, empty if nowhere. `remark`: what else is to say about the state.
    """

    id: str
    section: str
    attack: str
    stops: str
    control: str = ""
    tests: str = ""
    state: ThreatState
    remark: str = ""
    ships: bool


class AttackReport(Model):
    """The answer of `sandbox doctor --attack`. `safe`: nothing got through, and nothing is void or an error.

    `skipped` entries need what this host lacks and say so. `engine` is empty where no entry needed one.
    """

    results: tuple[AttackResult, ...]
    safe: bool
    held: int
    got_through: int
    void: int
    skipped: int
    errors: int
    wall_time_s: float
    engine: str
    runtime: str
    git: str
