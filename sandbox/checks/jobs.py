"""How many jobs a check's build tools run at once. Pure.

A check's command is fixed words, so `make -j$(nproc)` is none. Build tools also take the number from the environment,
which is part of the check and so of what a verdict is bound to.
"""

from __future__ import annotations

import math

from sandbox.models import Check, Limits

JOB_BYTES = 512 * 1024**2
"""Memory that one job is reckoned to take: a C++ compiler takes about as much."""


def jobs_of(check: Check) -> int | None:
    """None: left to the tools. `auto`: as many as the check has CPUs, and memory for."""
    return automatic(check.limits) if check.jobs == "auto" else check.jobs


def automatic(limits: Limits) -> int:
    """One at least; as many as `nproc` prints in the guest, unless memory is short."""
    return max(1, min(math.ceil(limits.cpus), limits.memory_bytes // JOB_BYTES))


def with_jobs(check: Check) -> Check:
    """The check with its number of jobs in its environment, where it does not say otherwise there."""
    count = jobs_of(check)
    if count is None:
        return check
    variables = {
        "MAKEFLAGS": f"-j{count}",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(count),
        "CTEST_PARALLEL_LEVEL": str(count),
        "CARGO_BUILD_JOBS": str(count),
    }
    return check.model_copy(update={"env": {**variables, **check.env}})
