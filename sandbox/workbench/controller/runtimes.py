"""The runtime of a check: the call's, else the profile's, else the one of the settings."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.services import Services


def choose_runtime(services: Services, profile: str = "") -> str:
    """Raises, before anything is created: `policy_violation` for a runtime that the policy does not allow,
    `engine_unavailable` for one that the engine does not have, and for an engine with other users.
    """
    override = services.settings.profiles.get(profile)
    configured = (override.runtime if override else "") or services.settings.container.runtime
    name = configured if services.runtime is None else services.runtime
    allowed = services.policies.container.container.runtimes
    if name not in allowed:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The policy does not allow the runtime {name!r}",
            hint=f"It allows {', '.join(allowed)}; see policies/container.toml.",
        )
    services.guest_engine.require_runtime(name)
    return name
