"""How slow the host is: never less than a quiet one, and more while others use it."""

from __future__ import annotations

import multiprocessing
import os
import time

from devtools.host_speed import slowness


def _spin() -> None:
    while True:
        pass


def test_a_host_that_is_in_use_is_slower() -> None:
    quiet = min(slowness() for _ in range(5))
    others = [
        multiprocessing.get_context("fork").Process(target=_spin, daemon=True)
        for _ in range(4 * len(os.sched_getaffinity(0)))
    ]
    try:
        for other in others:
            other.start()
        deadline = time.monotonic() + 60
        while (used := slowness()) <= quiet and time.monotonic() < deadline:
            pass
    finally:
        for other in others:
            other.kill()
            other.join()
    assert 1.0 <= quiet < used
