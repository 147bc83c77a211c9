"""Built images that no home of this engine uses any more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandbox.workbench.controller.lazy import Lazy
from sandbox.workbench.controller.profile_images import image_references
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.reconciling.survey import Finding, Survey

if TYPE_CHECKING:
    from sandbox import images
else:  # loaded when a home has had guests (docs/adr/0003)
    images = Lazy("sandbox.images")


def unused_images(survey: Survey) -> Iterator[Finding]:
    """Built images that are not used; see `sandbox.images.unused` for what is kept.

    A home that never started a container does not need an engine for this. If the engine does not answer, an earlier
    finder has reported it.
    """
    services = survey.parts
    if not (services.home.root / "instance").exists() or survey.guests_unknown:
        return
    for unused in images.find_unused(services.image_site, image_references(services), services.settings.images.keep_days):
        note = f"no home has used it since {unused.since}"
        yield Finding("image", unused.name, partial(_remove, services, unused), note=note)


def _remove(services: Parts, unused: images.Unused) -> str | None:
    with services.home.locked("images", 0.0):  # a build may be about to use it as its parent
        return "" if images.remove_unused(services.image_site, unused) else None
