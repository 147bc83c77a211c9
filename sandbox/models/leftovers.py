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
    """One thing that a killed controller left behind, or that is no longer kept. `note`: where its work was saved, why
    it was kept, or why it may go. `bytes`: what its removal frees; 0 if that is little or was not measured.
    """

    kind: str
    name: str
    action: LeftoverAction
    note: str = ""
    bytes: int = 0


class Reconciliation(Model):
    """The answer of `gc`. With `dry_run` the actions are those it would take."""

    dry_run: bool
    leftovers: tuple[Leftover, ...]
