"""List the images of this home in the engine, and which of them are stale."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from sandbox.engine.image_types import Image
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.catalogue import LATEST_TAG, TAG_PREFIX, Recipe, lineage, read_catalogue, tag_of
from sandbox.images.debian import find_present_base
from sandbox.images.lookup import (
    FOLDER_LABEL,
    NAME_LABEL,
    WHEELHOUSE_LABEL,
    ImageBuildContext,
    find_lineage_images,
    is_of_recipe,
    is_outdated,
)
from sandbox.models import ImageInfo


def list_images(site: ImageBuildContext, in_use: Collection[str] = ()) -> tuple[ImageInfo, ...]:
    """List every image of the catalogue, and the variants that were built with it, by name. Uses no network.

    Images of other recipes (another version, checkout or home) are not listed, except variants with a name in `in_use`,
    because the operator chose the name. A folder that cannot be built has a `problem`.
    """
    recipes = read_catalogue(site.home)
    base = find_present_base(site.engine, site.settings)
    known = [_describe_recipe(site, recipes, name, base) for name in sorted(recipes)]
    return tuple(sorted([*known, *_list_variants(site, recipes, base, in_use)], key=lambda info: info.name))


def _describe_recipe(
    site: ImageBuildContext, recipes: Mapping[str, Recipe], name: str, base: Image | None
) -> ImageInfo:
    try:
        line = lineage(recipes, name)
        steps = find_lineage_images(site, line)
    except SandboxError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        problem = f"{error.brief}: {error.details}".removesuffix(": ")
        return ImageInfo(name=name, tag="", present=False, stale=False, problem=problem)
    return describe_image(name, steps[-1].tag, steps[-1].image, stale=_is_stale([base, *(s.image for s in steps)]))


def _is_stale(images: list[Image | None]) -> bool:
    """From Debian up: an image is stale when its parent, or any image below that, was rebuilt."""
    stale = False
    for below, image in pairwise(images):
        stale = image is not None and (stale or is_outdated(image, below))
    return stale


def _list_variants(
    site: ImageBuildContext, recipes: Mapping[str, Recipe], base: Image | None, in_use: Collection[str]
) -> list[ImageInfo]:
    """List the images built with `name_as`. Labels are inherited, so the tag must match the label."""
    variants = []
    for tag in site.engine.list_image_tags(label=WHEELHOUSE_LABEL):
        name = tag.removeprefix(TAG_PREFIX).removesuffix(f":{LATEST_TAG}")
        image = site.engine.inspect_image(tag) if tag == tag_of(name) and name not in recipes else None
        if image is None or image.labels.get(NAME_LABEL) != name or image.labels.get(FOLDER_LABEL) == name:
            continue
        stale = _is_stale_variant(site, recipes, image, base)
        if not stale or name in in_use:
            folder = image.labels.get(FOLDER_LABEL, "")
            variants.append(describe_image(name, tag, image, stale=stale, variant_of=folder))
    return variants


def _is_stale_variant(site: ImageBuildContext, recipes: Mapping[str, Recipe], image: Image, base: Image | None) -> bool:
    try:
        line = lineage(recipes, image.labels.get(FOLDER_LABEL, ""))
    except SandboxError:
        return True
    below = [base, *(step.image for step in find_lineage_images(site, line[:-1]))]
    return not is_of_recipe(site, line, image) or _is_stale([*below, image])


def describe_image(name: str, tag: str, image: Image | None, *, stale: bool = False, variant_of: str = "") -> ImageInfo:
    """Convert an image to an `ImageInfo`."""
    info = ImageInfo(name=name, tag=tag, present=image is not None, stale=stale, variant_of=variant_of)
    if image is None:
        return info
    figures = {"digest": image.digest, "size_bytes": image.size_bytes, "created_at": image.created_at}
    return info.model_copy(update=figures)
