"""The list of threats: what an attacker tries, what stops it, which test proves it. The texts are in threats.toml.

Some entries ship (`sandbox.attack.selection`), more are only tested, a few are neither; `state` says which.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from sandbox.attack.selection import ENTRIES, choose
from sandbox.models import Threat

SOURCE = Path(__file__).with_name("threats.toml")


def explain(only: Sequence[str] = ()) -> tuple[Threat, ...]:
    """All threats, or those selected as in `select`, in the order of their ids. Runs no attack.

    Raises: `invalid_input` for a name that is neither.
    """
    known = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    shipped = {entry.id for entry in ENTRIES}
    chosen = sorted(choose(known, only))
    return tuple(Threat(id=name, section=name[0], ships=name in shipped, **known[name]) for name in chosen)
