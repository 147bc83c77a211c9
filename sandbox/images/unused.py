"""Images of recipes that no home uses any more, found by the use tags of all homes of an engine (`lookup`).

An image is kept if any home may need it: this home's recipes or profiles resolve to it, a container uses it, it was
used or built in the last days, a kept image was built on it, or it has a tag that we did not create.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

from sandbox.engine.image_types import Image
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.catalogue import IMAGE_NAME, LATEST_TAG, TAG_DIGITS, TAG_PREFIX, has_recipe, lineage, read_catalogue
from sandbox.images.lookup import (
    FOLDER_LABEL,
    NAME_LABEL,
    PARENT_LABEL,
    PARENT_LAYERS_LABEL,
    RECIPE_LABEL,
    ImageBuildContext,
    digest_layers,
    find_last_use,
    find_lineage_images,
)
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

_OUR_VERSION = lazy_pattern(rf"({LATEST_TAG}|[0-9a-f]{{{TAG_DIGITS}}})(-used-\d{{8}})?")


@dataclass(frozen=True)
class UnusedImage:
    """An image to remove. `tags`: all its tags; the last one is its name. `since`: the day of its last use or build."""

    digest: str
    tags: tuple[str, ...]
    since: date

    @property
    def name(self) -> str:
        """The tag that is its name."""
        return self.tags[-1]


def find_unused_images(site: ImageBuildContext, references: Collection[str], keep_days: float) -> Iterator[UnusedImage]:
    """Find images that no home has used for `keep_days`. `references`: the images of this home's profiles."""
    images = site.engine.list_images_with_label(RECIPE_LABEL)
    keep = _find_required(site, references) | site.engine.find_image_digests_in_use()
    before = datetime.now(UTC).date() - timedelta(days=keep_days)
    yield from select_unused(images, keep, before)


def _find_required(site: ImageBuildContext, references: Collection[str]) -> set[str]:
    """Return the digests that this home's recipes and profiles resolve to. A damaged recipe has none."""
    recipes = read_catalogue(site.home)
    images: list[Image | None] = []
    for name in recipes:
        try:
            images += [step.image for step in find_lineage_images(site, lineage(recipes, name))]
        except SandboxError as error:
            if error.code is not ErrorCode.INVALID_INPUT:
                raise
    for reference in references:
        if not has_recipe(site.home, reference):
            images.append(site.engine.inspect_image(reference))
    return {image.digest for image in images if image is not None}


def select_unused(images: Sequence[Image], keep: Collection[str], before: date) -> list[UnusedImage]:
    """Select the images that no rule keeps, children before their parents. Pure."""
    candidates = {found.digest: found for image in images if (found := _as_unused(image)) is not None}
    labels = {image.digest: image.labels for image in images}
    by_layers = {digest_layers(image): image.digest for image in images if image.layers}
    kept = {digest for digest in labels if digest not in candidates or candidates[digest].since >= before} | set(keep)
    pending = list(kept)
    while pending:
        child = labels.get(pending.pop(), {})
        parents = {child.get(PARENT_LABEL, ""), by_layers.get(child.get(PARENT_LAYERS_LABEL, ""), "")} - {"", *kept}
        kept |= parents
        pending += parents
    return sorted((c for c in candidates.values() if c.digest not in kept), key=lambda c: c.name)


def _as_unused(image: Image) -> UnusedImage | None:
    """Convert an image to an `UnusedImage`; None if not entirely ours: a foreign tag, a variant, a child."""
    name = image.labels.get(NAME_LABEL, "")
    if not IMAGE_NAME.fullmatch(name) or image.labels.get(FOLDER_LABEL) != name:
        return None
    ours = {tag for tag in image.tags if _OUR_VERSION.fullmatch(tag.removeprefix(f"{TAG_PREFIX}{name}:"))}
    naming = sorted(tag for tag in ours if "-used-" not in tag)
    if not naming or set(image.tags) != ours:
        return None
    return UnusedImage(image.digest, (*sorted(ours - {naming[0]}), naming[0]), find_last_use(image))


def remove_unused_image(site: ImageBuildContext, unused: UnusedImage) -> bool:
    """Remove the image, unless it was used or tagged since. Returns whether it was removed.

    Raises: `conflict` when a container uses it.
    """
    image = site.engine.inspect_image(unused.digest)
    if image is None or _as_unused(image) != unused:
        return False
    if unused.digest in site.engine.find_image_digests_in_use():
        raise SandboxError(ErrorCode.CONFLICT, f"The image {unused.name} is in use")
    for tag in unused.tags:
        site.engine.untag_image(tag)
    return True
