"""The runtimes of an engine. A missing runtime is an error before any container is created; there is no fallback."""

from __future__ import annotations

from sandbox.engine.products import how_to_get_runtime
from sandbox.engine.protocol import EngineInformation
from sandbox.errors import ErrorCode, SandboxError

DEFAULT_RUNTIME = "runc"
"""Docker always has it, so it is not asked for it; an engine without it refuses to create the container."""


def list_runtimes(engine: EngineInformation) -> tuple[str, ...]:
    """List the names of the engine's runtimes, sorted."""
    return tuple(sorted(engine.info().get("Runtimes") or {}))


def require_runtime(engine: EngineInformation, name: str, *, is_given: bool = True) -> None:
    """`is_given`: the engine has `DEFAULT_RUNTIME`, which then costs no request.

    Raises: `engine_unavailable`, with the list of available runtimes.
    """
    if is_given and name == DEFAULT_RUNTIME:
        return
    info = engine.info()
    present = sorted(info.get("Runtimes") or {})
    if name not in present:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"The engine has no runtime '{name}'",
            details=f"{engine.endpoint.url} has {', '.join(present) or 'none'}",
            hint=how_to_get_runtime(info, name),
        )
