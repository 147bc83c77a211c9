"""Whether the receivers of events that the settings name can be made.

They are made in the process that serves HTTP. The daemon starts that again whenever it ends: one that can never be made
would leave a daemon that says that it serves, and neither answers over HTTP nor does what time asks for.
"""

from __future__ import annotations

from importlib.util import find_spec

from sandbox.config import ServeSettings
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.token_file import read_token

_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def require_receivers(settings: ServeSettings) -> None:
    """Raises: `policy_violation` for a secret of a webhook that others can read or that is too short; `invalid_input`
    for one that cannot be read, and without the extra `otel` if a collector is named.
    """
    for one in settings.webhook:
        read_token(one.secret_file, create=False)
    if settings.otlp_url:
        for name in _NEEDED:
            _require_module(name)


def _require_module(name: str) -> None:
    """Imports the packages that would hold it, not the module."""
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # a package that would hold it
        found = None
    if found is None:
        raise missing_extra_error(f"No module named {name}")


def missing_extra_error(details: str) -> SandboxError:
    """For a collector that is named without the extra."""
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        "OpenTelemetry is not installed",
        details=details,
        hint="Install `space-sandbox[otel]`, or remove serve.otlp_url.",
    )
