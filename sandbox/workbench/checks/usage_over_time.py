"""Use-case: what a run used while it ran."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import UsageSeries
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.usage_files import find_usage


def read_usage(home: Home, run_id: str) -> UsageSeries:
    """Raises: `not_found` for an unknown run, for one without samples, and if the process that ran it was killed;
    `conflict` while it runs.
    """
    owner = runs.find_owner(home, run_id)
    found = find_usage(home, owner, run_id)
    if found is not None:
        return found
    now = "`sandbox top` shows what it uses now."
    runs.find_ended_run(home, owner, run_id, without=", so its usage is not written yet", hint=now)
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        f"The usage of {run_id} over time was not recorded",
        details="Runs on an engine of another host, and those of older versions, have only the sums.",
        hint=f"Its sums: `sandbox check runs {owner}`.",
    )
