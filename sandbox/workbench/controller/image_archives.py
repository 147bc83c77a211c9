"""Copy images to and from other hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.images import export, imports
from sandbox.models import ImageArchive
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.services import Services


def export_images(
    services: Services, path: Path, names: Sequence[str], progress: Callable[[str], None] | None
) -> ImageArchive:
    """Write an archive. Raises: as `sandbox.images.export`, `quota_exceeded`."""
    with services.disk.admit(Writer.IMAGE):
        return export.export_images(services.image_build_context, path, names, progress or _ignore_line)


def import_images(
    services: Services, path: Path, progress: Callable[[str], None] | None, *, expected: str | None, replace: bool
) -> ImageArchive:
    """Import an archive. Raises: as `sandbox.images.imports`, `quota_exceeded`."""
    with services.disk.admit(Writer.IMAGE):
        return imports.import_images(
            services.image_build_context, path, progress or _ignore_line, expected=expected, replace=replace
        )


def _ignore_line(_line: str) -> None:
    """For callers that show no progress."""
