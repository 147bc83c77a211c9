"""Find the image of a recipe in the engine by its tag and labels, also by those of versions before docs/adr/0037.

Each use of an image records the day on it, as a tag that all homes of the engine share (`NAME:<recipe>-used-<day>`). An
engine does not know the homes, and a tag is the only thing that can be added to an image later. `gc` reads it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, date, datetime

from sandbox.config import ImageSettings
from sandbox.engine.image_types import Image
from sandbox.engine.protocol import ContainerEngine, ImageStore
from sandbox.errors import SandboxError
from sandbox.images.catalogue import Recipe, fingerprint_recipe, read_lineage, recipe_digests, tag_of
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.store.home import Home

RECIPE_LABEL = "space.sandbox.recipe"
NAME_LABEL = "space.sandbox.image"
FOLDER_LABEL = "space.sandbox.folder"
PARENT_LABEL = "space.sandbox.parent"
PARENT_LAYERS_LABEL = "space.sandbox.parent-layers"
"""Digest of the parent's layers. An image that was imported into another kind of image store has another id there."""
WHEELHOUSE_LABEL = "space.sandbox.wheelhouse"
PACKAGES_LABEL = "space.sandbox.packages"
_log = logging.getLogger(__name__)
_USED = lazy_pattern(r"-used-(\d{8})\Z")


@dataclass(frozen=True)
class ImageBuildContext:
    """The context of image builds: engine, home, image settings, and the caller's environment for proxies and index.

    `cgroup_parent`: see `ImageBuild`.
    """

    engine: ContainerEngine
    home: Home
    settings: ImageSettings
    environ: Mapping[str, str] = field(repr=False)
    cgroup_parent: str = ""


@dataclass(frozen=True)
class RecipeImage:
    """One recipe of a lineage with its digest, and its image if the engine has one."""

    recipe: Recipe
    digest: str
    image: Image | None

    @property
    def tag(self) -> str:
        """The tag of its images."""
        return tag_of(self.recipe.name, self.digest)


def find_recipe_image(site: ImageBuildContext, name: str) -> RecipeImage:
    """Find the recipe of a catalogue name and its image. Costs one request to the engine if the image exists.

    Raises: `not_found`, `invalid_input` as `lineage`.
    """
    line = read_lineage(site.home, name)
    digests = recipe_digests(line, site.settings.base)
    image = find_image(site.engine, line[-1], digests[-1])
    if image is None:
        return find_lineage_images(site, line)[-1]
    return RecipeImage(line[-1], digests[-1], image)


def find_lineage_images(site: ImageBuildContext, line: tuple[Recipe, ...]) -> tuple[RecipeImage, ...]:
    """Find the image of each recipe of a lineage; the recipe on Debian is first."""
    steps: list[RecipeImage] = []
    for recipe, digest in zip(line, recipe_digests(line, site.settings.base), strict=True):
        parent = steps[-1].image if steps else None
        image = find_image(site.engine, recipe, digest) or _find_latest(site.engine, recipe, digest, parent)
        steps.append(RecipeImage(recipe, digest, image))
    return tuple(steps)


def find_image(engine: ImageStore, recipe: Recipe, digest: str) -> Image | None:
    """Find the image with the tag of this digest, if its labels match: any program may move a tag."""
    image = engine.inspect_image(tag_of(recipe.name, digest))
    if image is None or (image.labels.get(RECIPE_LABEL) != digest and not _has_earlier_label(image, recipe)):
        return None
    return image


def _find_latest(engine: ImageStore, recipe: Recipe, digest: str, parent: Image | None) -> Image | None:
    """Find an image without its recipe's tag: loaded as `latest`, or built by an earlier version on this parent."""
    image = engine.inspect_image(tag_of(recipe.name))
    if image is None or image.labels.get(RECIPE_LABEL) == digest:
        return image
    if not _has_earlier_label(image, recipe):
        return None
    if not recipe.parent or (parent is not None and not is_outdated(image, parent)):
        return image
    # The parent is another image, perhaps of another recipe. Use the image only if it was loaded without its parent.
    return image if engine.inspect_image(image.labels[PARENT_LABEL]) is None else None


def _has_earlier_label(image: Image, recipe: Recipe) -> bool:
    """Versions before docs/adr/0037 used the parent's image, not its recipe, in the digest."""
    expected = fingerprint_recipe(recipe, image.labels.get(PARENT_LABEL, ""))
    return image.labels.get(NAME_LABEL) == recipe.name and image.labels.get(RECIPE_LABEL) == expected


def variant_digest(site: ImageBuildContext, line: tuple[Recipe, ...], wheelhouse_sha256: str) -> str:
    """Return the digest of the last recipe of a lineage with extra wheels."""
    below = recipe_digests(line[:-1], site.settings.base)
    return fingerprint_recipe(line[-1], below[-1] if below else site.settings.base, wheelhouse_sha256)


def is_of_recipe(site: ImageBuildContext, line: tuple[Recipe, ...], variant: Image) -> bool:
    """Whether a variant was built from this recipe, with any wheels."""
    wheels, built_on = variant.labels.get(WHEELHOUSE_LABEL, ""), variant.labels.get(PARENT_LABEL, "")
    recorded = variant.labels.get(RECIPE_LABEL)
    return recorded in {variant_digest(site, line, wheels), fingerprint_recipe(line[-1], built_on, wheels)}


def is_outdated(image: Image, parent: Image | None) -> bool:
    """Whether an image was built on other files than those of the current parent (rebuilt, or another Debian)."""
    if parent is None or image.labels.get(PARENT_LABEL) == parent.digest:
        return False
    return not parent.layers or image.labels.get(PARENT_LAYERS_LABEL) != digest_layers(parent)


def digest_layers(image: Image) -> str:
    """SHA-256 (hex) over the digests of an image's layers: all its files, the same in every image store. Pure."""
    return hashlib.sha256("\n".join(image.layers).encode()).hexdigest()


def record_use(engine: ImageStore, step: RecipeImage) -> None:
    """Tag an image that is about to be used with today's date, and remove older date tags. Once a day for each engine.

    An engine error is only logged and does not stop the run: the image then counts as unused since its build.
    """
    if step.image is None:
        return
    today = format_use_tag(step.tag, datetime.now(UTC).date())
    if {step.tag, today} <= set(step.image.tags):
        return
    try:
        for reference in (step.tag, today):
            engine.tag_image(step.image.digest, reference)
        for reference in find_use_tags(step.image, step.tag) - {today}:
            engine.untag_image(reference)
    except SandboxError as error:
        _log.info("the use of %s was not recorded: %s", step.tag, error.brief)


def format_use_tag(tag: str, day: date) -> str:
    """Return the tag for the use of an image on a day."""
    return f"{tag}-used-{day:%Y%m%d}"


def find_use_tags(image: Image, tag: str) -> set[str]:
    """Return all use tags of an image."""
    return {each for each in image.tags if _USED.sub("", each) == tag and each != tag}


def find_last_use(image: Image) -> date:
    """Return the day of the last use or of the build; today when neither can be read, so that the image is kept."""
    days = [found[1] for each in image.tags if (found := _USED.search(each))]
    try:
        return datetime.strptime(max(days), "%Y%m%d").date() if days else date.fromisoformat(image.created_at[:10])
    except ValueError:
        return datetime.now(UTC).date()
