"""Images with more Debian packages: derived from another image once for each list, and found again by its digest.

The key of a derived image is the base image's digest, the list and the suite (docs/adr/0058). All of them share one
name, so that they are listed, recorded as used, and collected like images of a recipe.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.engine.image_types import Image, ImageBuild, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.build import (
    BUILD_FAILED,
    LOCK_TIMEOUT_S,
    build,
    build_args,
    lock_images,
    read_mirror_certificates,
)
from sandbox.images.build_steps import build_recorded
from sandbox.images.catalogue import TAG_PREFIX, Recipe, fingerprint_recipe, has_recipe, tag_of
from sandbox.images.debian import SUITE
from sandbox.images.lookup import (
    FOLDER_LABEL,
    NAME_LABEL,
    PACKAGES_LABEL,
    PARENT_LABEL,
    RECIPE_LABEL,
    ImageBuildContext,
    RecipeImage,
    find_use_tags,
    record_use,
)
from sandbox.images.resolve import resolve_image
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ImageInfo, PackageName

NAME = "packages"
"""The name of all derived images: their tags are `space-sandbox/packages:<12 digits>`."""
BASE_LABEL = "space.sandbox.derived-from"
_RECIPE = Recipe(NAME, Path(__file__).parent / "package_layer", parent="")
_MARK = "package-layer "
_NEAR_MATCHES = 3
_RELEASE_CHARS = 40


def resolve_derived(site: ImageBuildContext, base_digest: str, packages: Sequence[str], base_name: str) -> str:
    """Return the digest of the image with these packages. Raises: `image_missing`, with the command that builds it."""
    step = _find(site, base_digest, packages)
    if step.image is None:
        raise SandboxError(
            ErrorCode.IMAGE_MISSING,
            f"The engine has no image '{base_name}' with the packages {', '.join(packages)}",
            hint=f"Build it: sandbox images derive {base_name} {' '.join(packages)}",
        )
    record_use(site.engine, step)
    return step.image.digest


def build_derived(site: ImageBuildContext, base_name: str, packages: Sequence[str], progress: Progress) -> ImageInfo:
    """Build the image `base_name` with more packages, unless the engine has it; its base first, if it has a recipe.

    Safe in several processes at once: one builds, the others wait. Raises: `invalid_input` for a name that no package
    can have, for a package that does not exist, with near matches, and for an image without apt;
    as `resolve_image` and `build`.
    """
    packages = _require_package_names(packages)
    base_digest = _resolve_or_build_base(site, base_name, progress)
    with lock_images(site.home, progress):
        step = _find(site, base_digest, packages)
        image = step.image or _build(site, step, base_digest, (base_name, packages), progress)
        record_use(site.engine, RecipeImage(step.recipe, step.digest, image))
    return _describe(image)


def _require_package_names(packages: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(TypeAdapter(tuple[PackageName, ...]).validate_python(packages))))
    except ValidationError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "This cannot be the name of a Debian package", details=describe_errors(error)
        ) from error


def _resolve_or_build_base(site: ImageBuildContext, name: str, progress: Progress) -> str:
    try:
        return resolve_image(site, name)
    except SandboxError as error:
        if error.code is not ErrorCode.IMAGE_MISSING or not has_recipe(site.home, name):
            raise
    build(site, name, progress)
    return resolve_image(site, name)


def list_derived(site: ImageBuildContext) -> tuple[ImageInfo, ...]:
    """List all derived images of the engine, by their list of packages."""
    images = (image for image in site.engine.list_images_with_label(PACKAGES_LABEL) if _own_tag(image))
    return tuple(sorted(map(_describe, images), key=lambda info: (info.derived_from, info.packages)))


def remove_derived(site: ImageBuildContext, name: str) -> ImageInfo:
    """Remove a derived image by the name in the list. Raises: `not_found`; `conflict` while a container uses it."""
    image = site.engine.inspect_image(f"{TAG_PREFIX}{name}") if name.startswith(f"{NAME}:") else None
    if image is None or not _own_tag(image):
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no image '{name}' with packages of a profile",
            hint="`sandbox images list` shows them. `sandbox gc` removes other images when they are not used.",
        )
    with site.home.locked("images", LOCK_TIMEOUT_S):
        if image.digest in site.engine.find_image_digests_in_use():
            raise SandboxError(ErrorCode.CONFLICT, f"The image {name} is in use by a container")
        tag = _own_tag(image)
        for each in (*find_use_tags(image, tag), tag):
            site.engine.untag_image(each)
    return _describe(image)


def _find(site: ImageBuildContext, base_digest: str, packages: Sequence[str]) -> RecipeImage:
    digest = fingerprint_packages(base_digest, packages)
    image = site.engine.inspect_image(tag_of(NAME, digest))
    known = image is not None and _is_derived(image, digest, base_digest)
    return RecipeImage(_RECIPE, digest, image if known else None)


def _is_derived(image: Image, digest: str, base_digest: str) -> bool:
    """Whether its labels say what its tag says: any program may move a tag."""
    return image.labels.get(RECIPE_LABEL) == digest and image.labels.get(PARENT_LABEL) == base_digest


def fingerprint_packages(base_digest: str, packages: Iterable[str]) -> str:
    """SHA-256 (hex) over the base image, the list in any order, the suite, and our files of such builds."""
    text = "\0".join([base_digest, SUITE, *sorted(set(packages))])
    return fingerprint_recipe(_RECIPE, hashlib.sha256(text.encode()).hexdigest())


def _build(
    site: ImageBuildContext,
    step: RecipeImage,
    base_digest: str,
    name_and_packages: tuple[str, Sequence[str]],
    progress: Progress,
) -> Image:
    base_name, packages = name_and_packages
    certificates = read_mirror_certificates(site.settings)
    request = ImageBuild(
        folder=step.recipe.folder,
        tag=step.tag,
        args=build_args(step.recipe, base_digest, site.environ),
        labels={
            RECIPE_LABEL: step.digest,
            NAME_LABEL: NAME,
            FOLDER_LABEL: NAME,
            PARENT_LABEL: base_digest,
            PACKAGES_LABEL: " ".join(packages),
            BASE_LABEL: base_name,
        },
        extra_files={"packages": "".join(f"{name}\n" for name in packages).encode(), "mirror-ca.crt": certificates},
        network=site.settings.build_network,
        cgroup_parent=site.cgroup_parent,
    )
    progress(f"building {step.tag}: {base_name} with {', '.join(packages)}")
    report = _BuildReport(progress)
    try:
        return build_recorded(site, request, report.add_line)
    except SandboxError as error:
        if report.missing:
            progress(f"not built: {step.tag}")
            raise missing_packages_error(report.missing, report.similar, report.release) from error
        if report.without_apt:
            progress(f"not built: {step.tag}")
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The image '{base_name}' cannot get Debian packages: it has no apt",
                hint="Name another image in the profile, or build one with these packages yourself (docs/images.md).",
            ) from error
        progress(f"{BUILD_FAILED}{step.tag}")
        raise


@dataclass
class _BuildReport:
    """Passes the lines of a build on, except those that `install-listed` prints for us."""

    progress: Progress
    missing: list[str] = field(default_factory=list)
    similar: list[str] = field(default_factory=list)
    release: str = SUITE
    without_apt: bool = False

    def add_line(self, line: str) -> None:
        """Take one line of the build."""
        kind, _, name = line.removeprefix(_MARK).partition(" ")
        if not line.startswith(_MARK):
            if not self.missing:  # what follows are the names, perhaps cut in two, and the end of the build
                self.progress(line)
        elif kind == "missing":
            self.missing.append(name)
        elif kind == "similar":
            self.similar.append(name)
        elif kind == "release":
            self.release = name[:_RELEASE_CHARS]
        else:
            self.without_apt |= kind == "no-apt"


def missing_packages_error(missing: Sequence[str], known: Iterable[str], release: str) -> SandboxError:
    """Build the error for packages that a Debian release does not have. `known`: names of packages that it has."""
    names = sorted(set(known))
    near = {name: difflib.get_close_matches(name, names, n=_NEAR_MATCHES, cutoff=0.6) for name in missing}
    hints = [f"{name}: did you mean {', '.join(found)}?" for name, found in near.items() if found]
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"Debian {release} has no package {', '.join(missing)}",
        details="\n".join(hints),
        hint="Correct `packages` in the profile or the configuration, or the file that you trusted.",
    )


def _own_tag(image: Image) -> str:
    """Its tag; empty if the image is not a derived one: labels are inherited by images that are built on one."""
    tag = tag_of(NAME, image.labels.get(RECIPE_LABEL, ""))
    return tag if tag in image.tags and image.labels.get(NAME_LABEL) == NAME else ""


def _describe(image: Image) -> ImageInfo:
    tag = tag_of(NAME, image.labels.get(RECIPE_LABEL, ""))
    return ImageInfo(
        name=tag.removeprefix(TAG_PREFIX),
        tag=tag,
        present=True,
        stale=False,
        digest=image.digest,
        size_bytes=image.size_bytes,
        created_at=image.created_at,
        derived_from=image.labels.get(BASE_LABEL, ""),
        packages=tuple(image.labels.get(PACKAGES_LABEL, "").split()),
    )
