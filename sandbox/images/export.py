"""Export images of the engine to an archive that another host imports (docs/adr/0085)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.engine.image_types import Image, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.archive_format import is_our_name, is_same_image
from sandbox.images.archive_writer import WrittenImage, write_archive
from sandbox.images.build import SUPERVISOR
from sandbox.images.catalogue import TAG_PREFIX, has_recipe, read_catalogue, read_lineage, tag_of
from sandbox.images.debian import BOOTSTRAPPED, find_present_base
from sandbox.images.lookup import FOLDER_LABEL, ImageBuildContext, find_lineage_images
from sandbox.images.packages import BASE_LABEL
from sandbox.images.packages import NAME as PACKAGES
from sandbox.images.resolve import missing_image_error, not_built_error
from sandbox.models import ImageArchive, TransferredImage


def export_images(site: ImageBuildContext, path: Path, names: Collection[str], progress: Progress) -> ImageArchive:
    """Write an archive with these images, what they were built on, and the guests' PID 1.

    `names`: as `sandbox images list` shows them; none: all images of the catalogue that the engine has. The file
    appears when it is complete. Raises: `image_missing`, `not_found`; `conflict` for a path that exists, and when an
    image was built again meanwhile.
    """
    if path.exists():
        raise SandboxError(ErrorCode.CONFLICT, f"{path} exists", hint="Choose another name, or remove it first.")
    chosen = dict(_choose(site, names))
    references = {image.tags[0]: tag for tag, image in chosen.items()}
    progress(f"saving {len(chosen)} images; the engine collects them first")
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w+b") as target:
            with site.engine.save_images(sorted(references)) as stream:
                digest, written = write_archive(stream, target, references, site.engine.plain_tag)
            _require_same(chosen, written)
            size = target.tell()
            target.flush()
            os.fsync(target.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    images = tuple(TransferredImage(tag=image.tag, digest=chosen[image.tag].digest) for image in written)
    return ImageArchive(path=path, digest=digest, size_bytes=size, images=images)


def _choose(site: ImageBuildContext, names: Collection[str]) -> Iterator[tuple[str, Image]]:
    """Choose the images, each with the tag that it gets in the archive."""
    for name in names or read_catalogue(site.home):
        try:
            yield from () if name == SUPERVISOR else _choose_line(site, name)
        except SandboxError as error:
            if names or error.code not in (ErrorCode.IMAGE_MISSING, ErrorCode.INVALID_INPUT):
                raise
    yield [*_choose_line(site, SUPERVISOR)][-1]  # guests do not need the compilers that it was made with


def _choose_line(site: ImageBuildContext, name: str) -> Iterator[tuple[str, Image]]:
    """Choose an image and those below it that the engine has. Raises: `image_missing`, `invalid_input`."""
    if has_recipe(site.home, name):
        steps = find_lineage_images(site, read_lineage(site.home, name))
        if steps[-1].image is None:
            raise not_built_error(name, others=False)
        if not site.settings.base and (base := find_present_base(site.engine, site.settings)):
            yield BOOTSTRAPPED, base  # also a pulled one: the other host finds it under this name first
        yield from ((step.tag, step.image) for step in steps if step.image)
        return
    tag = f"{TAG_PREFIX}{name}" if name.startswith(f"{PACKAGES}:") else tag_of(name)
    image = site.engine.inspect_image(tag)
    if image is None or not is_our_name(tag, dict(image.labels)):
        raise missing_image_error(name, read_catalogue(site.home), ())
    with suppress(SandboxError):  # what it was built on may be gone, or an image that is not ours
        yield from _choose_line(site, image.labels.get(BASE_LABEL) or image.labels.get(FOLDER_LABEL, ""))
    yield tag, image


def _require_same(chosen: Mapping[str, Image], written: Sequence[WrittenImage]) -> None:
    """Raises: `conflict` if the engine saved other images than it showed: a tag was moved in between."""
    tags = {image.tag for image in written}
    if tags != chosen.keys() or not all(is_same_image(chosen[image.tag], image.config) for image in written):
        raise SandboxError(
            ErrorCode.CONFLICT, "An image was built again during the export", hint="Export again; no file was written."
        )
