"""Built images that no home of this engine uses any more, and what interrupted builds of this home left."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandbox.lazy_module import LazyModule
from sandbox.workbench.controller.profile_images import list_image_references
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler

if TYPE_CHECKING:
    from sandbox import images
else:  # loaded when a home has had guests (docs/adr/0003)
    images = LazyModule("sandbox.images")


def find_old_images(reconciler: Reconciler) -> Iterator[Finding]:
    """Built images that are not used; see `sandbox.images.unused` for what is kept.

    A home that never started a container does not need an engine for this. If the engine does not answer, an earlier
    finder has reported it.
    """
    services = reconciler.services
    if not (services.home.root / "instance").exists() or reconciler.guests_unknown:
        return
    for unused in images.find_unused_images(
        services.image_build_context,
        list_image_references(services.settings, services.policies, services.home),
        services.settings.images.keep_days,
    ):
        note = f"no home has used it since {unused.since}"
        yield Finding("image", unused.name, partial(_remove, services, unused), note=note)


def _remove(services: Services, unused: images.UnusedImage) -> str | None:
    with services.home.locked("images", 0.0):  # a build may be about to use it as its parent
        return "" if images.remove_unused_image(services.image_build_context, unused) else None


def find_step_images(reconciler: Reconciler) -> Iterator[Finding]:
    """Images of steps of builds that did not end. A home that built none does not need an engine for this."""
    services = reconciler.services
    if reconciler.guests_unknown or not services.home.build_steps.is_dir():
        return
    for step in images.find_step_images(services.image_build_context):
        note = f"left by a build of {step.tag}"
        yield Finding("image", step.digest[:19], partial(_remove_step, services, step), note=note)


def _remove_step(services: Services, step: images.StepImage) -> str | None:
    with services.home.locked("images", 0.0):  # a build may be about to go on from it
        return "" if images.remove_step_image(services.image_build_context, step) else None
