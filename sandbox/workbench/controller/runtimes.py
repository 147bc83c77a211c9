"""Which runtime a check gets: the call's, else its profile's, else the settings'."""

from __future__ import annotations

from sandbox.engine.runtimes import require_runtime
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.services import Parts


def runtime_of(parts: Parts, profile: str = "") -> str:
    """Raises: `policy_violation` for one that the policy does not allow, `engine_unavailable` for one that the engine
    lacks: both before anything is created.
    """
    override = parts.settings.profiles.get(profile)
    name = parts.runtime or (override.runtime if override else "") or parts.settings.container.runtime
    allowed = parts.policy.container.runtimes
    if name not in allowed:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The policy does not allow the runtime {name!r}",
            hint=f"It allows {', '.join(allowed)}; see policies/container.toml.",
        )
    require_runtime(parts.engine, name)
    return name
