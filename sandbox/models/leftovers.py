"""What a controller left when it was killed, and what `gc` did about it."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import Model


class Tidying(StrEnum):
    """What became of a leftover. `busy`: somebody works there, the next time does it."""

    REMOVED = "removed"
    RESCUED = "rescued"
    RESTORED = "restored"
    KEPT = "kept"
    BUSY = "busy"
    FAILED = "failed"


class Leftover(Model):
    """One thing that a controller left when it was killed. `note`: where its work went, or why it stays."""

    kind: str
    name: str
    action: Tidying
    note: str = ""


class Reconciliation(Model):
    """The answer of `gc`; with `dry_run` the actions are what it would do."""

    dry_run: bool
    leftovers: tuple[Leftover, ...]
