"""The runtimes of an engine. A missing runtime is an error before any container is created; there is no fallback."""

from __future__ import annotations

from sandbox.engine.protocol import EngineInformation
from sandbox.errors import ErrorCode, SandboxError

DEFAULT_RUNTIME = "runc"
"""Every engine has it, so it is not checked; an engine without it refuses to create the container."""


def list_runtimes(engine: EngineInformation) -> tuple[str, ...]:
    """List the names of the engine's runtimes, sorted."""
    return tuple(sorted(engine.info().get("Runtimes") or {}))


def require_runtime(engine: EngineInformation, name: str) -> None:
    """Raises: `engine_unavailable`, with the list of available runtimes. Costs one request, except for the default."""
    if name == DEFAULT_RUNTIME:
        return
    present = list_runtimes(engine)
    if name not in present:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The engine has no runtime '{name}'",
            details=f"{engine.endpoint.url} has {', '.join(present) or 'none'}",
            hint=f"Install '{name}' and register it in the engine's daemon.json (docs/hardening.md), or choose another "
            "with --runtime or container.runtime.",
        )
