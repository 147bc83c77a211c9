"""Containers that the engine could not end, and that all other finders ignore (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.lazy import LazyModule
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler

if TYPE_CHECKING:
    from sandbox.engine import quarantine
else:  # loaded when there is one (docs/adr/0003)
    quarantine = LazyModule("sandbox.engine.quarantine")


def find_quarantined(reconciler: Reconciler) -> Iterator[Finding]:
    """Try again for a short time; `busy` while the engine still cannot end the container."""
    for name in QuarantineNotes(reconciler.services.home.quarantine).names():
        yield Finding(
            "container", name, partial(_reap, reconciler.services, name), note="the engine could not end it before"
        )


def _reap(services: Services, name: str) -> str:
    quarantine.retry_removal(services.engine, name)
    return ""
