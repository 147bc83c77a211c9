"""How slow this host is at the moment, for tests that hold a bound in seconds against code that must not hang."""

from __future__ import annotations

import subprocess
import time

_LOOPS, _LOOPS_S = 500_000, 0.03
_START_S = 0.01
"""What a loop of Python and the start of a process take on a host of 2024 that does nothing else, rounded up."""


def slowness() -> float:
    """How many times longer than on a quiet host things take right now: at least 1.0.

    A test multiplies its bound by it, after the work: `assert took_s < 2 * slowness()`. Measured as wall time, so that
    other processes count as well as a slow processor.
    """
    return max(1.0, _count_s() / _LOOPS_S, _start_s() / _START_S)


def _count_s() -> float:
    began = time.monotonic()
    for _ in range(_LOOPS):
        pass
    return time.monotonic() - began


def _start_s() -> float:
    began = time.monotonic()
    subprocess.run(["/bin/true"], check=True)
    return time.monotonic() - began
