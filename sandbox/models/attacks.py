"""Attacks on this host: `sandbox doctor --attack`."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class AttackOutcome(StrEnum):
    """How an attack on this host ended. `void`: its control was not hit, so it has no meaning. `error`: we failed."""

    HELD = "held"
    GOT_THROUGH = "got_through"
    VOID = "void"
    SKIPPED = "skipped"
    ERROR = "error"


class AttackResult(Model):
    """One entry of `sandbox doctor --attack`. `tried`: what the product did with the hostile input.

    `control`: what happened to an unprotected command with it. `seen`: what happened to the product, or why the attack
    was skipped.
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
    """How a threat is covered. `by_design`: the attacked feature does not exist. `later`: not in this version."""

    TESTED = "tested"
    PARTLY = "partly"
    BY_DESIGN = "by design"
    LATER = "later"


class Threat(Model):
    """One entry of the list of threats, as `sandbox doctor --attack --explain` shows it.

    `attack`: one sentence. `stops`: what stops it; empty: no protection yet. `control`: what happens to an unprotected
    command; empty unless the entry `ships`, that is, `sandbox doctor --attack` runs it on this host. `tests`: where it
    is tested, or empty. `remark`: a note on the state.
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
    """The answer of `sandbox doctor --attack`. `safe`: some held, none got through, is void or an error.

    `skipped`: entries that need something this host lacks; they say what. `engine`: empty if no entry needed one.
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
