"""Containers that the engine could not end, and that all other finders ignore (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandbox.store.quarantine import Quarantine
from sandbox.workbench.controller.lazy import Lazy
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.reconciling.survey import Finding, Survey

if TYPE_CHECKING:
    from sandbox.engine import quarantine
else:  # loaded when there is one (docs/adr/0003)
    quarantine = Lazy("sandbox.engine.quarantine")


def quarantined(survey: Survey) -> Iterator[Finding]:
    """Try again for a short time; `busy` while the engine still cannot end the container."""
    for name in Quarantine(survey.parts.home.quarantine).held():
        yield Finding("container", name, partial(_reap, survey.parts, name), note="the engine could not end it before")


def _reap(services: Parts, name: str) -> str:
    quarantine.reap(services.engine, name)
    return ""
