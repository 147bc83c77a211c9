"""Run a check with its tests in another order. Pure."""

from __future__ import annotations

from sandbox.models import Check

_SEED = "<seed>"


def shuffle_check(check: Check, seed: int) -> Check:
    """The check with the variables of its `shuffle`; unchanged without any."""
    if not check.shuffle:
        return check
    chosen = {name: text.replace(_SEED, str(seed)) for name, text in check.shuffle.items()}
    return check.model_copy(update={"env": {**check.env, **chosen}})
