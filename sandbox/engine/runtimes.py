"""Which runtimes an engine has. Asking for one that it lacks is an error before anything is made, never a fallback."""

from __future__ import annotations

from sandbox.engine.connection import Engine
from sandbox.errors import ErrorCode, SandboxError

DEFAULT = "runc"
"""What every engine has, so nobody asks; one that lacks it refuses to create the container."""


def runtimes(engine: Engine) -> tuple[str, ...]:
    """Names of what the engine can start containers with, sorted."""
    return tuple(sorted(engine.info().get("Runtimes") or {}))


def require_runtime(engine: Engine, name: str) -> None:
    """Raises: `engine_unavailable` with the list of what there is. Costs a call to the engine, but for the default."""
    if name == DEFAULT:
        return
    present = runtimes(engine)
    if name not in present:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The engine has no runtime '{name}'",
            details=f"{engine.endpoint.url} has {', '.join(present) or 'none'}",
            hint=f"Install '{name}' and register it in the engine's daemon.json (docs/hardening.md), or choose another "
            "with --runtime or container.runtime.",
        )
