"""Which product answers at an engine's address. Pure.

Podman serves Docker's API, but its answers to `inspect` and its checks of options differ, so that a container would be
refused late and in Podman's own words. It names itself in `GET /version` (seen: 4.3.1), which is read to connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSUPPORTED_HINT = (
    "Podman's Docker-compatible socket is not supported yet (the package podman-docker puts it at Docker's own place). "
    "Use Docker Engine 20.10 or newer: point engine.host or DOCKER_HOST at its socket."
)
_UNSUPPORTED = {"Podman Engine": "Podman"}


def find_unsupported_product(version: Mapping[str, Any]) -> str:
    """Name and version of a product that is known not to work here, from `GET /version`; '' for any other."""
    components = version.get("Components")
    for component in components if isinstance(components, list) else ():
        product = _UNSUPPORTED.get(str(component.get("Name"))) if isinstance(component, dict) else None
        if product:
            return f"{product} {component.get('Version') or ''}".rstrip()
    return ""
