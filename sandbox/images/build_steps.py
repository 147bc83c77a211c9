"""What builds of a home leave in the engine: the image of each completed step.

A build that is interrupted leaves the image of its last step without a tag. The next build goes on from it; if there is
none, it takes up space. No label tells it from images of others: it inherits those of its parent, as whatever a person
builds on an image of ours does. So the ids that the engine prints are written down as they come, and only images with
these ids are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.engine.image_types import Image, ImageBuild, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.lookup import ImageBuildContext
from sandbox.lazy_dataclass import dataclass
from sandbox.store.home import write_atomically

_MAX_IDS = 500
_BEGINS = re.compile(r"(?:Step|STEP) \d{1,4}/\d{1,4} ?: (?P<instruction>\w+)")
_STEP_IMAGE = re.compile(r" ?-{2,3}> (?P<id>[0-9a-f]{12,64})")  # Docker, Podman


@dataclass(frozen=True)
class StepImage:
    """An image that no tag and no other image needs. `tag`: of the image that was to be built."""

    digest: str
    tag: str


def build_recorded(site: ImageBuildContext, request: ImageBuild, progress: Progress) -> Image:
    """Build an image and write down the ids of its steps' images. Raises: as `build_image` of an engine."""
    path = site.home.build_steps / request.tag.replace("/", "_")
    ids = _read_ids(path)[-_MAX_IDS:]
    is_base = False

    def report(line: str) -> None:
        nonlocal is_base
        if begins := _BEGINS.match(line):
            is_base = begins["instruction"].upper() == "FROM"  # its image is not of this build
        elif not is_base and (found := _STEP_IMAGE.fullmatch(line)) and found["id"] not in ids:
            ids.append(found["id"])
            with suppress(OSError):  # the build is worth more
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, "".join(f"{each}\n" for each in ids).encode(), synced=False)
        progress(line)

    return site.engine.build_image(request, report)


def find_step_images(site: ImageBuildContext) -> Iterator[StepImage]:
    """The recorded images that are left. Asks the engine only if there are records."""
    records = sorted(site.home.build_steps.glob("*")) if site.home.build_steps.is_dir() else []
    dangling = site.engine.find_dangling_image_digests() if records else frozenset[str]()
    for record in records:
        ids = tuple(_read_ids(record))
        for digest in sorted(dangling):
            if ids and digest.removeprefix("sha256:").startswith(ids):
                yield StepImage(digest, record.name.replace("_", "/", 1))


def remove_step_image(site: ImageBuildContext, step: StepImage) -> bool:
    """Remove an image if it still has no tag. Returns whether it did. Raises: `conflict` for one that is in use."""
    found = site.engine.inspect_image(step.digest)
    if found is None or found.tags:
        return False
    if step.digest in site.engine.find_image_digests_in_use():
        raise SandboxError(ErrorCode.CONFLICT, f"A container uses the image {step.digest[:19]}")
    site.engine.untag_image(step.digest)
    return True


def _read_ids(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split()
    except OSError:
        return []
