"""Resolve the image name in a profile to the digest for a container."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from sandbox.engine.image_types import Image
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.catalogue import IMAGE_NAME, LATEST_TAG, TAG_PREFIX, has_recipe, read_catalogue, tag_of
from sandbox.images.lookup import WHEELHOUSE_LABEL, ImageBuildContext, find_recipe_image, record_use


def resolve_image(site: ImageBuildContext, reference: str) -> str:
    """Return the digest of a profile's image. Raises: as `find_usable_image`."""
    return find_usable_image(site, reference).digest


def find_usable_image(site: ImageBuildContext, reference: str) -> Image:
    """Find a profile's image: a catalogue name, a variant's name, or any local image by tag or digest.

    Does not pull. Raises: `image_missing`, with the command that builds it, `policy_violation` for an image with a
    VOLUME (an anonymous volume escapes every disk limit; THREATS M01), `invalid_input`.
    """
    image = _find_any_image(site, reference)
    if image.has_volumes:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The image '{reference}' declares a VOLUME",
            hint="Rebuild it without VOLUME: files that a check writes there would not be counted or limited.",
        )
    return image


def read_wheelhouse_digest(site: ImageBuildContext, digest: str) -> str:
    """Return the sha256 of the extra requirements file of one of our images; empty for any other image.

    Raises: `engine_unavailable`.
    """
    image = site.engine.inspect_image(digest)
    return image.labels.get(WHEELHOUSE_LABEL, "") if image else ""


def _find_any_image(site: ImageBuildContext, reference: str) -> Image:
    if has_recipe(site.home, reference):  # never another image with the same name
        step = find_recipe_image(site, reference)
        if step.image is None:
            raise not_built_error(step.recipe.name, others=site.engine.inspect_image(tag_of(reference)) is not None)
        record_use(site.engine, step)
        return step.image
    ours = site.engine.inspect_image(tag_of(reference)) if IMAGE_NAME.fullmatch(reference) else None
    image = ours or site.engine.inspect_image(reference)
    if image is None:
        raise missing_image_error(reference, read_catalogue(site.home), site.engine.list_image_tags())
    return image


def not_built_error(name: str, *, others: bool) -> SandboxError:
    """Build the error for an image of the catalogue that the engine does not have with this home's recipe.

    `others`: it has one of that name from another recipe: of another version, checkout or home.
    """
    brief = f"The engine has no image '{name}'"
    if others:
        brief += " of this version's recipe"
    return SandboxError(
        ErrorCode.IMAGE_MISSING,
        brief,
        details="It has one of another version, checkout or home, which is not used." if others else "",
        hint=f"Build it: sandbox images build {name}",
    )


def missing_image_error(reference: str, names: Collection[str], tags: Collection[str]) -> SandboxError:
    """Build the error for an image that is neither in the catalogue nor in the engine, with a hint how to get it."""
    near = find_near_matches(reference, names, tags)
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    hint += "Load or pull it into the engine, or add a folder under $SANDBOX_HOME/images/ and build that."
    return SandboxError(ErrorCode.IMAGE_MISSING, f"The engine has no image '{reference}'", hint=hint)


def find_near_matches(reference: str, names: Collection[str], tags: Collection[str]) -> list[str]:
    """Return at most three names or tags that are similar to `reference`, best first."""
    ours = {tag.removeprefix(TAG_PREFIX).removesuffix(f":{LATEST_TAG}") for tag in tags if tag.startswith(TAG_PREFIX)}
    others = {tag for tag in tags if not tag.startswith(TAG_PREFIX)}
    return difflib.get_close_matches(reference, sorted({*names, *others, *ours}), n=3, cutoff=0.6)
