"""The labels of guests: the home, and the tenant if the settings have one."""

from __future__ import annotations

from pathlib import Path

from sandbox.checks.execute import GuestSettings
from sandbox.engine.create_options import Supervisor

NOWHERE = Path("/nonexistent")


def test_a_tenant_is_a_label_and_no_tenant_is_none() -> None:
    def labels(tenant: str) -> dict[str, str]:
        supervisor = Supervisor(NOWHERE, 60)
        return GuestSettings("sha256:0", "runc", NOWHERE, NOWHERE, "home", (0, 1), supervisor, tenant=tenant).labels

    assert labels("") == {"space.sandbox.instance": "home"}
    assert labels("acme") == {"space.sandbox.instance": "home", "space.sandbox.tenant": "acme"}
