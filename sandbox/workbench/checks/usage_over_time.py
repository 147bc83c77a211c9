"""Use-case: what a run used while it ran."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import UsageSeries
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.usage_files import find_usage


def read_usage(home: Home, run_id: str) -> UsageSeries:
    """Raises: `not_found` for an unknown run, and for one without samples; `conflict` while it runs."""
    owner = runs.find_owner(home, run_id)
    found = find_usage(home, owner, run_id)
    if found is not None:
        return found
    if runs.find_run_record(home, owner, run_id) is None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{run_id} has not ended, so its usage is not written yet",
            hint="`sandbox top` shows what it uses now.",
        )
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        f"The usage of {run_id} over time was not recorded",
        details="Runs on an engine of another host, and those of older versions, have only the sums.",
        hint=f"Its sums: `sandbox check runs {owner}`.",
    )
