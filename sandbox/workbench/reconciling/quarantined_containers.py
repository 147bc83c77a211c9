"""Containers that the engine could not end, and that all other finders ignore (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler


def find_quarantined(reconciler: Reconciler) -> Iterator[Finding]:
    """Try again for a short time; `busy` while the engine still cannot end the container. Not after a finder that the
    engine did not answer: each further wait would be as long.
    """
    if reconciler.guests_unknown:
        return
    for name in QuarantineNotes(reconciler.services.home.quarantine).names():
        yield Finding(
            "container", name, partial(_reap, reconciler.services, name), note="the engine could not end it before"
        )


def _reap(services: Services, name: str) -> str:
    services.engine.retry_removal(name)
    return ""
