"""How many parallel jobs a check's build tools run. Pure.

A check's command is a fixed argv, so `make -j$(nproc)` is not possible. Build tools also read the number from the
environment, which is part of the check, and so of the key of a verdict.
"""

from __future__ import annotations

import math

from sandbox.models import Check, Limits

JOB_BYTES = 512 * 1024**2
"""Estimated memory of one job: about that of a C++ compiler."""


def jobs_of(check: Check) -> int | None:
    """Return a check's number of jobs. `auto`: as many as its CPUs and memory allow. None: the tools decide."""
    return automatic_jobs(check.limits) if check.jobs == "auto" else check.jobs


def automatic_jobs(limits: Limits) -> int:
    """Return the number that `nproc` prints in the guest, or less if memory is short; at least 1."""
    return max(1, min(math.ceil(limits.cpus), limits.memory_bytes // JOB_BYTES))


def with_jobs(check: Check) -> Check:
    """Return the check with its number of jobs in its environment; variables that it sets itself are kept."""
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
