"""Export images of the engine to an archive that another host imports (docs/adr/0085)."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from sandbox.engine.image_types import Image, Progress
from sandbox.errors import DISK_FULL, DISK_FULL_HINT, NO_SPACE, ErrorCode, SandboxError
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
from sandbox.store.home import sync_folder

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PIECE = 1024**2
_ELSEWHERE = "Name a file in a directory that exists, that you may write and that has space for the images."
_CANNOT_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES)

FileT = TypeVar("FileT", bound="IO[bytes] | io.BufferedRandom")


class _ArchiveFile(io.FileIO):
    """A file that is written. Its errors are those of `target`, not of the engine that is read meanwhile."""

    def __init__(self, descriptor: int, target: Path) -> None:
        super().__init__(descriptor, "r+b")
        self._target = target

    def write(self, content: ReadableBuffer, /) -> int:
        with _reporting(self._target):
            return super().write(content)


def export_images(site: ImageBuildContext, path: Path, names: Collection[str], progress: Progress) -> ImageArchive:
    """Write an archive with these images, what they were built on, and the guests' PID 1.

    `names`: as `sandbox images list` shows them; none: all images of the catalogue that the engine has. The file
    never takes the place of another. It appears when it is complete; on a file system without hard links it is copied
    there, and a crash may leave a part. Raises: `image_missing`, `not_found`; `conflict` for a
    path that exists, then or at the end, and when an image was built again meanwhile; `invalid_input` for a path that
    cannot be written, `quota_exceeded` for a disk that is full.
    """
    _require_free(path)
    chosen = dict(_choose(site, names))
    references = {image.tags[0]: tag for tag, image in chosen.items()}
    with _reporting(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".sandbox-images-")
    try:
        with _closing(io.BufferedRandom(_ArchiveFile(descriptor, path))) as target:
            progress(f"saving {len(chosen)} images; the engine collects them first")
            with site.engine.save_images(sorted(references)) as stream:
                digest, written = write_archive(stream, target, references, site.engine.plain_tag)
            _require_same(chosen, written)
            size = target.tell()
            target.flush()
            with _reporting(path):
                os.fsync(target.fileno())
        with _reporting(path):
            _publish(Path(temporary), path)
            _sync_name(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    images = tuple(TransferredImage(tag=image.tag, digest=chosen[image.tag].digest) for image in written)
    return ImageArchive(path=path, digest=digest, size_bytes=size, images=images)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Translate errors of the file system where the archive is written. Raises: `invalid_input`, `quota_exceeded`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED, f"{DISK_FULL}: cannot write {path}", hint=f"{_ELSEWHERE} {DISK_FULL_HINT}"
            ) from error
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot write {path}", details=error.strerror or "", hint=_ELSEWHERE
        ) from error


@contextmanager
def _closing(file: FileT) -> Iterator[FileT]:
    """Close a file that is written. After an error, also an interrupt, that error is raised, and not one of closing."""
    try:
        yield file
    except BaseException:
        with suppress(OSError, SandboxError):
            file.close()
        raise
    file.close()


def _require_free(path: Path) -> None:
    """Raises: `conflict` for a path that exists, also as a link that leads nowhere; `invalid_input` for none at all."""
    with _reporting(path), suppress(FileNotFoundError):
        try:
            path.lstat()
        except ValueError as error:  # a NUL byte, or no text
            raise OSError(errno.EINVAL, str(error)) from error
        raise _exists_error(path)


def _publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name. Raises: `conflict` if there is one of this name by now; OSError."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise _exists_error(path) from error
    except OSError:  # a file system without hard links: EPERM, EOPNOTSUPP, ENOSYS
        _copy_new(temporary, path)


def _copy_new(temporary: Path, path: Path) -> None:
    """Copy a file to a name that is free; it is not whole before the end. Raises: `conflict`; OSError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise _exists_error(path) from error
    try:
        with _closing(open(descriptor, "wb", closefd=False)) as copy, temporary.open("rb") as source:
            shutil.copyfileobj(source, copy, _PIECE)
            copy.flush()
            os.fsync(copy.fileno())
    except BaseException:
        _remove_own(descriptor, path)
        raise
    finally:
        os.close(descriptor)


def _remove_own(descriptor: int, path: Path) -> None:
    """Remove an open file by its name, unless another file has the name by now."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            path.unlink()


def _sync_name(path: Path) -> None:
    """Sync the name of a file to disk, where its file system can, and if its directory may be read. Raises: OSError."""
    try:
        sync_folder(path.parent)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def _exists_error(path: Path) -> SandboxError:
    return SandboxError(ErrorCode.CONFLICT, f"{path} exists", hint="Choose another name, or remove it first.")


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
