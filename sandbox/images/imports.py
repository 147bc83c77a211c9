"""Import an archive of images into the engine: all of them, or none (docs/adr/0085).

The archive is checked as a whole before the engine gets a byte. The engine gets the images without names, each is
compared with what was read of it, and only then are the names moved. If a step fails, names and images are as before.
"""

from __future__ import annotations

import io
import os
import platform
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.engine.image_types import Image, Progress
from sandbox.engine.protocol import ImageStore
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.archive_format import is_same_image
from sandbox.images.archive_reader import ArchivedImage, ImageArchiveReader
from sandbox.images.build import lock_images
from sandbox.images.catalogue import TAG_PREFIX, has_recipe, tag_of
from sandbox.images.lookup import RECIPE_LABEL, ImageBuildContext, find_recipe_image, find_use_tags, format_use_tag
from sandbox.models import ImageArchive, TransferredImage

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def import_images(
    site: ImageBuildContext, path: Path, progress: Progress, *, expected: str | None = None, replace: bool = False
) -> ImageArchive:
    """Import an archive of `export_images`. Images that the engine has already are kept.

    `expected`: the archive's digest. `replace`: let the imported image take a name that another image of the engine
    has. Raises: `invalid_input` for anything that is not such an archive; `conflict` for a name that another image has;
    `internal` when the engine refuses it. The engine then has what it had before.
    """
    with _open_archive(path) as file:
        progress(f"checking {path.name}")
        archive = ImageArchiveReader(file, expected)
        _require_this_machine(archive.images)
        with lock_images(site.home, progress):
            return _import_checked(site, archive, path, progress, replace=replace)


def _open_archive(path: Path) -> io.FileIO:
    """Open a plain file. Raises: `invalid_input` for any other, and at once: a FIFO would wait for a writer."""
    try:
        file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except (OSError, ValueError) as error:  # ValueError: a NUL byte, or no text
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Cannot read {path}",
            details=(error.strerror if isinstance(error, OSError) else str(error)) or "",
            hint="Name a file that `sandbox images export` wrote and that you may read.",
        ) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{path} is a pipe or a device, not a plain file",
            hint="An archive is read several times. Write it to a file, and import that.",
        )
    return file


def _import_checked(
    site: ImageBuildContext, archive: ImageArchiveReader, path: Path, progress: Progress, *, replace: bool
) -> ImageArchive:
    engine, images, today = site.engine, archive.images, datetime.now(UTC).date()
    present = {image.tag for image in images if _find_same(engine, image)}
    replaced = {image.tag: other for image in images if (other := _find_other(engine, image)) is not None}
    if replaced and not replace:
        raise _conflict_error(replaced)
    loaded: tuple[str, ...] = ()
    try:
        if len(present) < len(images):
            progress(f"loading {len(images)} images, {format_bytes(archive.size_bytes)}")
            loaded = engine.load_images(archive.stream())
        found = {image.tag: _require_loaded(engine, image, loaded) for image in images}
        usable = {tag for tag in found if _is_usable(site, tag)}
        _move_tags(engine, [*_list_moves(site, found, usable), *_list_uses(found, today)])
    except SandboxError:
        _remove_loaded(engine, (image for image in images if image.tag not in present), loaded)
        raise
    for tag, image in replaced.items():
        _forget_use(engine, image, tag, today)
    described = tuple(
        TransferredImage(tag=tag, digest=image.digest, loaded=tag not in present, usable=tag in usable)
        for tag, image in found.items()
    )
    return ImageArchive(path=path, digest=archive.digest, size_bytes=archive.file_bytes, images=described)


def _require_this_machine(images: Iterable[ArchivedImage]) -> None:
    wanted = ("linux", ARCHITECTURES.get(platform.machine(), platform.machine()))
    for image in images:
        found = (image.config.os, image.config.architecture)
        if found != wanted:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The images are for {'/'.join(found)[:60]}, this host is {'/'.join(wanted)}",
                hint="Export them on a host of this kind, or build them here.",
            )


def _find_same(engine: ImageStore, archived: ArchivedImage, loaded: Iterable[str] = ()) -> Image | None:
    """Find an image of the archive in the engine, by the ids that it may have, or by its name."""
    for reference in (archived.config_digest, archived.manifest.digest, *loaded, archived.tag):
        image = engine.inspect_image(reference)
        if image is not None and is_same_image(image, archived.config):
            return image
    return None


def _find_other(engine: ImageStore, archived: ArchivedImage) -> Image | None:
    """Find another image that has the name of this one."""
    image = engine.inspect_image(archived.tag)
    return None if image is None or is_same_image(image, archived.config) else image


def _require_loaded(engine: ImageStore, archived: ArchivedImage, loaded: tuple[str, ...]) -> Image:
    image = _find_same(engine, archived, loaded)
    if image is None:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The engine has not got the image {archived.tag} of the archive",
            details=f"It has none with the layers, labels and defaults of {archived.config_digest}.",
            hint="No name was changed. Try again, and check the engine's log.",
        )
    return image


def _conflict_error(replaced: Mapping[str, Image]) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The engine has other images of the same recipes: {', '.join(sorted(replaced))}",
        details="\n".join(f"{tag} is {image.digest}" for tag, image in sorted(replaced.items())),
        hint="They were built separately, so verdicts are not shared. --replace uses those of the archive instead.",
    )


def _is_usable(site: ImageBuildContext, tag: str) -> bool:
    name = tag.removeprefix(TAG_PREFIX).rpartition(":")[0]
    if not has_recipe(site.home, name):
        return True
    try:
        return find_recipe_image(site, name).tag == tag
    except SandboxError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        return False  # a damaged recipe


def _list_moves(site: ImageBuildContext, found: Mapping[str, Image], usable: Collection[str]) -> list[tuple[str, str]]:
    """List pairs of a digest and a name. `latest`, which is for people, moves as it does after a build."""
    moves = [(image.digest, tag) for tag, image in found.items()]
    for tag in usable:
        name = tag.removeprefix(TAG_PREFIX).rpartition(":")[0]
        if has_recipe(site.home, name):
            moves.append((found[tag].digest, tag_of(name)))
    return moves


def _list_uses(found: Mapping[str, Image], today: date) -> list[tuple[str, str]]:
    """List pairs of a digest and a use tag: for `gc` the import is a use. Else the day of the build would count, which
    may be long ago on the other host. An image without a recipe, which `gc` does not know, gets none.
    """
    return [(image.digest, format_use_tag(tag, today)) for tag, image in found.items() if RECIPE_LABEL in image.labels]


def _move_tags(engine: ImageStore, moves: Iterable[tuple[str, str]]) -> None:
    """Move names, all or none."""
    done: list[tuple[str, Image | None]] = []
    try:
        for digest, reference in moves:
            done.append((reference, engine.inspect_image(reference)))
            engine.tag_image(digest, reference)
    except SandboxError:
        for reference, previous in reversed(done):
            with suppress(SandboxError):
                if previous is None:
                    engine.untag_image(reference)
                else:
                    engine.tag_image(previous.digest, reference)
        raise


def _remove_loaded(engine: ImageStore, images: Iterable[ArchivedImage], loaded: Iterable[str]) -> None:
    """Remove images that the engine did not have before. One that has got a name meanwhile is kept by the engine."""
    for archived in images:
        image = _find_same(engine, archived, loaded)
        if image is not None and not image.tags:
            with suppress(SandboxError):
                engine.untag_image(image.digest)


def _forget_use(engine: ImageStore, image: Image, tag: str, today: date) -> None:
    """Remove the use tags of an image that lost its name: they would keep it for ever. That of today has moved."""
    for reference in find_use_tags(image, tag) - {format_use_tag(tag, today)}:
        with suppress(SandboxError):  # a container uses it
            engine.untag_image(reference)
