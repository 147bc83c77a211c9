"""Run a check with its tests in another order. Pure."""

from __future__ import annotations

from sandbox.models import Check


def shuffle_check(check: Check, seed: int) -> Check:
    """The check with the variables of its `shuffle`; unchanged without any."""
    if not check.shuffle:
        return check
    return check.model_copy(update={"env": {**check.env, **check.shuffled_env(str(seed))}})
