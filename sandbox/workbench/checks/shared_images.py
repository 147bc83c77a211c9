"""Images that several homes share, in the store of the shared verdict cache.

image-ARCH-RECIPE.json  a signed statement: the archive that has the image of this recipe, and the digests of its parts
image-part-SHA256       8 MiB of an archive of images (docs/adr/0085), addressed by its content

Hosts that build an image each get different ones, and a verdict holds for one image only. So one host shares what it
built, and the others take it where they would build. Everyone who may write to the store can put any content under any
name: a statement counts if a key that this home trusts signed it, for the very recipe that is asked for; each part if
its content has the digest in the statement; and the archive as `images import --digest` takes it. What is refused is a
miss, with a warning: the image is built here.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sandbox.byte_sizes import format_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.images import list_images
from sandbox.images.catalogue import read_lineage, recipe_digests, tag_of
from sandbox.models import ImageArchive
from sandbox.models.model import Model
from sandbox.models.receipts import ReceiptKey, ReceiptRefusal
from sandbox.receipts.dsse_envelope import MOST_BYTES, sign_payload
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.store.shared_store import SharedStore, open_store
from sandbox.workbench.checks.shared_parts import PART_BYTES, ChangedPartError, PartDigest, PartWriter, read_parts
from sandbox.workbench.checks.shared_statements import open_statement
from sandbox.workbench.controller import image_archives, signing
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services

MOST_ARCHIVE_BYTES = 16 * 1024**3
_KIND = "image"
_log = logging.getLogger(__name__)


class SharedImage(Model):
    """What a home signs about an image. `recipe`: its digest; `archive`: that of the archive, which has its parents."""

    type: Literal["space-sandbox/image/v1"] = "space-sandbox/image/v1"
    architecture: str
    recipe: str
    archive: str
    size_bytes: Annotated[int, Field(ge=0, le=MOST_ARCHIVE_BYTES)]
    parts: Annotated[tuple[PartDigest, ...], Field(max_length=MOST_ARCHIVE_BYTES // PART_BYTES)]


def share_images(services: Services, names: Sequence[str], progress: Callable[[str], None]) -> tuple[ImageArchive, ...]:
    """Put images of the catalogue into the store, each with what it was built on.

    Raises: `invalid_input` without `cache.images` and `cache.write`; `image_missing`, `not_found`; `quota_exceeded`;
    `network_error` if the store cannot be written.
    """
    store = _open(services)
    if store is None or not services.settings.cache.write:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "This home shares no images",
            hint="Set cache.url, cache.images and cache.write (docs/images.md).",
        )
    signer = signing.find_signer(services, None)
    sizes = {image.name: image.size_bytes or 0 for image in list_images(services.image_build_context)}
    shared: list[ImageArchive] = []
    for name in names:
        recipe = _find_recipe(services, name)
        demand = Demand(sizes.get(name, 0), 2)  # with what it was built on
        with services.disk.admit(Writer.IMAGE, demand), _staging(services) as folder:
            archive = image_archives.export_images(services, folder / "images.tar", (name,), progress)
            if archive.size_bytes > MOST_ARCHIVE_BYTES:
                raise _too_large_error(name, archive.size_bytes)
            progress(f"sharing {name}, {format_bytes(archive.size_bytes)}")
            try:
                parts = _write_parts(store, archive.path)
                entry = SharedImage(
                    architecture=platform.machine(), recipe=recipe, archive=archive.digest,
                    size_bytes=archive.size_bytes, parts=parts,
                )  # fmt: skip
                payload = json.dumps(entry.model_dump(mode="json"), sort_keys=True).encode()
                store.write(_name(recipe), sign_payload(payload, signer).encode())
            except OSError as error:
                raise SandboxError(
                    ErrorCode.NETWORK_ERROR,
                    f"The image '{name}' cannot be shared",
                    details=str(error)[:500],
                    hint="Look whether the store of cache.url can be written from here, then share it again.",
                ) from error
        shared.append(archive)
    return tuple(shared)


def take_image(services: Services, name: str, progress: Callable[[str], None]) -> bool:
    """Import the shared image of a name of the catalogue; False if there is none that can be used, with a warning.

    Raises: `invalid_input` for a trusted key that cannot be used.
    """
    store = _open(services)
    if store is None:
        return False
    trusted, recipe = signing.load_trusted(services, ()), _find_recipe(services, name)
    try:
        entry = _find(store, recipe, trusted)
        if entry is None:
            return False
        progress(f"taking the shared image '{name}', {format_bytes(entry.size_bytes)}")
        with _staging(services) as folder:
            path = folder / "images.tar"
            # Twice: the engine gets the same again, while the archive is here.
            with services.disk.admit(Writer.IMAGE, Demand(2 * entry.size_bytes, 2)), path.open("xb") as archive:
                for part in read_parts(store, _KIND, entry.parts):
                    archive.write(part)
            taken = image_archives.import_images(services, path, progress, expected=entry.archive, replace=False)
    except (OSError, ChangedPartError) as error:
        _log.warning("the shared image %s cannot be used: %s", name, str(error)[:200])
    except SandboxError as error:
        if error.code not in _MISSES:
            raise
        _log.warning("refused the shared image %s: %s %s", name, error.brief, error.details[:200])
    else:
        return any(image.usable and image.tag == tag_of(name, entry.recipe) for image in taken.images)
    return False


_MISSES = {
    ErrorCode.RECEIPT_REFUSED,
    ErrorCode.CONFLICT,
    ErrorCode.INVALID_INPUT,
    ErrorCode.INTERNAL,
    ErrorCode.QUOTA_EXCEEDED,
}
"""How an import ends of an archive that is another one, of another machine, too large for the disk, or has a name that
is taken here.
"""


def _open(services: Services) -> SharedStore | None:
    cache = services.settings.cache
    return open_store(cache.url) if cache.url and cache.images else None


def _find_recipe(services: Services, name: str) -> str:
    """The digest of a recipe of the catalogue. Raises: `not_found`, `invalid_input`."""
    return recipe_digests(read_lineage(services.home, name), services.settings.images.base)[-1]


def _find(store: SharedStore, recipe: str, trusted: Sequence[ReceiptKey]) -> SharedImage | None:
    content = store.read(_name(recipe), MOST_BYTES)
    if content is None:
        return None
    entry = open_statement(content, trusted, SharedImage)
    if (entry.recipe, entry.architecture) != (recipe, platform.machine()):
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "it is about another image")
    if len(entry.parts) != -(-entry.size_bytes // PART_BYTES):
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "the archive has another size than its parts")
    return entry


def _write_parts(store: SharedStore, path: Path) -> tuple[str, ...]:
    parts = PartWriter(store, _KIND)
    with path.open("rb") as archive:
        while chunk := archive.read(PART_BYTES):
            parts.write(chunk)
    return parts.finish()


@contextmanager
def _staging(services: Services) -> Iterator[Path]:
    """A folder of ours, which `gc` removes if this controller is killed."""
    folder = services.home.clean_room(f"run-{services.presence.new_id()}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove_tree(folder)


def _too_large_error(name: str, size: int) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The archive of '{name}' has {size} bytes; at most {MOST_ARCHIVE_BYTES} are shared",
        hint="Copy it with `sandbox images export` and `import`.",
    )


def _name(recipe: str) -> str:
    return f"image-{platform.machine()}-{recipe}.json"
