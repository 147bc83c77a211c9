"""What a killed controller left behind, and what `gc` did with it."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class LeftoverAction(StrEnum):
    """What happened to a leftover. `busy`: it is in use; run `gc` again later."""

    REMOVED = "removed"
    RESCUED = "rescued"
    RESTORED = "restored"
    KEPT = "kept"
    BUSY = "busy"
    FAILED = "failed"


class Leftover(Model):
    """One thing that a killed controller left behind. `note`: where its work was saved, or why it was kept."""

    kind: str
    name: str
    action: LeftoverAction
    note: str = ""


class Reconciliation(Model):
    """The answer of `gc`. With `dry_run` the actions are those it would take."""

    dry_run: bool
    leftovers: tuple[Leftover, ...]
