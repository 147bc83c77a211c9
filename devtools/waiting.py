"""Wait for what another thread or process does, where there is no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 240.0
"""Only reached by a failure: a busy machine takes its time."""

_PAUSE_S = 0.01
_ValueT = TypeVar("_ValueT")


def wait_until(claim: Callable[[], _ValueT], deadline_s: float = DEADLINE_S) -> _ValueT:
    """The first value of `claim` that is true. Raises: TimeoutError after the deadline."""
    ends = time.monotonic() + deadline_s
    while not (value := claim()):
        if time.monotonic() > ends:
            raise TimeoutError(f"it did not happen within {deadline_s:g} s")
        time.sleep(_PAUSE_S)
    return value
