"""Build images from their folders, parents first; existing images of the same recipes are reused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sandbox.config import ImageSettings
from sandbox.engine.build_output import STEP_FAILED
from sandbox.engine.image_types import BUILD_DEADLINE_S, Image, ImageBuild, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.build_order import build_in_order
from sandbox.images.build_steps import build_recorded
from sandbox.images.catalogue import Recipe, lineage, read_catalogue, recipe_digests, require_image_name, tag_of
from sandbox.images.debian import PROXIES, ensure_base, find_present_base
from sandbox.images.inventory import describe_image
from sandbox.images.lookup import (
    FOLDER_LABEL,
    NAME_LABEL,
    PARENT_LABEL,
    PARENT_LAYERS_LABEL,
    RECIPE_LABEL,
    WHEELHOUSE_LABEL,
    ImageBuildContext,
    RecipeImage,
    digest_layers,
    find_lineage_images,
    find_use_tags,
    is_outdated,
    record_use,
    variant_digest,
)
from sandbox.lazy_dataclass import dataclass
from sandbox.models import ImageInfo
from sandbox.shipped_files import find_resources
from sandbox.store.home import Home

BUILD_FAILED = "failed: "
SUPERVISOR = "init"
"""The image of the guests' PID 1."""
WITHOUT_CHECKS = frozenset({"base", SUPERVISOR})
"""Images that are built without PID 1: PID 1 itself is compiled in an image on top of `base`."""
LOCK_TIMEOUT_S = 2 * BUILD_DEADLINE_S
_WHEELHOUSE_LIMIT = 4 * 1024**2


@dataclass(frozen=True)
class _BuildOrder:
    """One image to build: a recipe, its name, and optional extra wheels. `digest`: of the recipe with these wheels.

    `current`: the engine's image of this recipe, if any.
    """

    recipe: Recipe
    name: str
    digest: str
    current: Image | None
    wheelhouse: bytes = b""

    @property
    def wheelhouse_sha256(self) -> str:
        return hashlib.sha256(self.wheelhouse).hexdigest() if self.wheelhouse else ""

    @property
    def is_variant(self) -> bool:
        """Whether the operator chose the name: the name is then the tag, without a recipe digest."""
        return self.name != self.recipe.name

    @property
    def tag(self) -> str:
        return tag_of(self.name, "" if self.is_variant else self.digest)


@contextmanager
def lock_images(home: Home, progress: Progress) -> Iterator[None]:
    """Hold the lock under which images are made, and say so if another process has it. Raises: `conflict`."""
    with ExitStack() as stack:
        try:
            stack.enter_context(home.locked("images", 0))
        except SandboxError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            progress("waiting: another command makes images of this home")
            stack.enter_context(home.locked("images", LOCK_TIMEOUT_S))
        yield


def build(
    site: ImageBuildContext,
    name: str,
    progress: Progress,
    *,
    no_cache: bool = False,
    wheelhouse: Path | None = None,
    name_as: str | None = None,
) -> ImageInfo:
    """Build the image `name`, its parents and the guests' PID 1, if missing or stale. Current images are kept.

    `no_cache` rebuilds `name` itself from scratch. `wheelhouse` (a requirements file) and `name_as` build a variant of
    a Python image with more wheels. Safe in several processes at once: one builds, the others wait.
    Independent images are built at the same time; each line begins with the name of its image, `NAME | `.
    Raises: `not_found`, `invalid_input`, `image_missing`, `network_error`, `timeout`, `internal`.
    """
    recipes = read_catalogue(site.home)
    line = lineage(recipes, name)
    content = _read_variant(line[-1], recipes, wheelhouse, name_as)
    lines = [line if content is None else line[:-1], *_supervisor_line(recipes, [name])]
    with lock_images(site.home, progress):
        made = _build_lines(site, lines, progress, {name} if no_cache else set())
        if content is None:
            image = made[name]
        else:
            order = _order_variant(site, line, name_as or "", content)
            image = _build_if_outdated(site, order, made[line[-1].parent], progress, no_cache=no_cache)
    tag = tag_of(name_as) if name_as else tag_of(name, recipe_digests(line, site.settings.base)[-1])
    return describe_image(name_as or name, tag, image)


def build_all(
    site: ImageBuildContext, names: Sequence[str], progress: Progress, *, no_cache: bool = False
) -> tuple[ImageInfo, ...]:
    """Build several images, as `build` does each, and at the same time what does not depend on each other."""
    recipes = read_catalogue(site.home)
    lines = {name: lineage(recipes, name) for name in names}
    with lock_images(site.home, progress):
        built = [*lines.values(), *_supervisor_line(recipes, names)]
        made = _build_lines(site, built, progress, set(names) if no_cache else set())
    tags = {name: tag_of(name, recipe_digests(line, site.settings.base)[-1]) for name, line in lines.items()}
    return tuple(describe_image(name, tag, made[name]) for name, tag in tags.items())


def _supervisor_line(recipes: Mapping[str, Recipe], names: Iterable[str]) -> list[tuple[Recipe, ...]]:
    """Checks in an image will need PID 1."""
    return [] if WITHOUT_CHECKS.issuperset(names) else [lineage(recipes, SUPERVISOR)]


def _build_lines(
    site: ImageBuildContext, lines: Iterable[tuple[Recipe, ...]], progress: Progress, rebuild: Collection[str]
) -> dict[str, Image]:
    """Build the images of several lineages and return them by name, Debian as ''. `rebuild`: from scratch."""
    steps = {step.recipe.name: step for line in lines for step in find_lineage_images(site, line)}
    missing = [name for name, step in steps.items() if step.image is None]
    if find_present_base(site.engine, site.settings) is None:
        missing.insert(0, site.settings.base or "Debian")
    if missing:
        progress(f"missing images, which are made now: {', '.join(missing)}")
    base = ensure_base(site.engine, site.settings, site.environ, progress)

    def build_step(name: str, parent: Image | None, report: Progress) -> Image:
        step = steps[name]
        order = _BuildOrder(step.recipe, name, step.digest, step.image)
        image = _build_if_outdated(site, order, parent or base, report, no_cache=name in rebuild)
        record_use(site.engine, RecipeImage(step.recipe, step.digest, image))
        return image

    return {"": base, **build_in_order({n: step.recipe.parent for n, step in steps.items()}, build_step, progress)}


def _read_variant(
    recipe: Recipe, recipes: Mapping[str, Recipe], wheelhouse: Path | None, name_as: str | None
) -> bytes | None:
    if wheelhouse is None and name_as is None:
        return None
    if wheelhouse is None or name_as is None or not recipe.wheelhouse or name_as in recipes:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Cannot build a variant of the image '{recipe.name}'",
            hint="Give both --wheelhouse and a new name, for an image with 'wheelhouse = true' in its recipe.toml: "
            "sandbox images build python --wheelhouse requirements.txt --as python-acme",
        )
    require_image_name(name_as)
    return _read_wheelhouse(wheelhouse)


def _order_variant(site: ImageBuildContext, line: tuple[Recipe, ...], name: str, wheelhouse: bytes) -> _BuildOrder:
    digest = variant_digest(site, line, hashlib.sha256(wheelhouse).hexdigest())
    current = site.engine.inspect_image(tag_of(name))
    same = current is not None and current.labels.get(RECIPE_LABEL) == digest
    return _BuildOrder(line[-1], name, digest, current if same else None, wheelhouse)


def _read_wheelhouse(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot read the wheel-house {path}", details=str(error)
        ) from error
    if not content.strip() or len(content) > _WHEELHOUSE_LIMIT:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The wheel-house {path} is empty or larger than {_WHEELHOUSE_LIMIT} bytes",
            hint="Give a pip requirements file, if possible pinned with hashes.",
        )
    return content


def _build_if_outdated(
    site: ImageBuildContext, order: _BuildOrder, parent: Image, progress: Progress, *, no_cache: bool
) -> Image:
    """Return the current image of an order if its parent is unchanged, else build a new one."""
    current = order.current
    if current is not None and not is_outdated(current, parent) and not no_cache:
        progress(f"{order.tag} is up to date")
        if not order.is_variant:
            site.engine.tag_image(current.digest, tag_of(order.name))
        return current
    build = ImageBuild(
        folder=order.recipe.folder,
        tag=order.tag,
        args=build_args(order.recipe, parent.digest, site.environ),
        labels={
            RECIPE_LABEL: order.digest,
            NAME_LABEL: order.name,
            FOLDER_LABEL: order.recipe.name,
            PARENT_LABEL: parent.digest,
            PARENT_LAYERS_LABEL: digest_layers(parent),
            WHEELHOUSE_LABEL: order.wheelhouse_sha256,
        },
        extra_files=_generate_files(order, site.settings),
        network=site.settings.build_network,
        no_cache=no_cache,
        cgroup_parent=site.cgroup_parent,
    )
    progress(f"building {order.tag}")
    try:
        image = build_recorded(site, build, progress)
    except SandboxError as error:
        with suppress(SandboxError):  # another build failed first
            progress(f"{BUILD_FAILED}{order.tag}")
        if error.reason == STEP_FAILED and not order.recipe.folder.is_relative_to(find_resources("images")):
            raise _mistake_error(error, order) from error
        raise
    _move_tags(site, order, image)
    return image


def _mistake_error(error: SandboxError, order: _BuildOrder) -> SandboxError:
    """A step of a Dockerfile of the operator's own failed."""
    line = (error.data or {}).get("line")
    file = order.recipe.folder / "Dockerfile"
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        error.brief,
        details=error.details,
        hint=f"Correct {f'line {line} of ' if line else ''}{file}, then `sandbox images build {order.name}`; completed "
        "steps are kept.",
        reason=error.reason,
        data=error.data,
    )


def _move_tags(site: ImageBuildContext, order: _BuildOrder, image: Image) -> None:
    """Move `latest` (a name for people only) to the new image, and remove the old image's use tags, which keep it."""
    if order.is_variant:
        return
    site.engine.tag_image(image.digest, tag_of(order.name))
    if order.current is not None and order.current.digest != image.digest:
        for reference in find_use_tags(order.current, order.tag):
            with suppress(SandboxError):  # a container uses it
                site.engine.untag_image(reference)


def build_args(recipe: Recipe, parent_digest: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the build arguments: the parent by digest (its tag may move), proxies, and the index for wheels."""
    passed_on = (*PROXIES, "PIP_INDEX_URL") if recipe.wheelhouse else PROXIES
    return {"BASE": parent_digest, **{key: environ[key] for key in passed_on if environ.get(key)}}


def _generate_files(order: _BuildOrder, settings: ImageSettings) -> dict[str, bytes]:
    """Return generated files for a Dockerfile that uses them; they are not part of the recipe."""
    if b".generated" not in (order.recipe.folder / "Dockerfile").read_bytes():
        return {}
    bundle = {".generated/ca.crt": _read_ca_bundle(settings)}
    bundle[".generated/mirror-ca.crt"] = read_mirror_certificates(settings)
    return bundle | ({".generated/wheelhouse.txt": order.wheelhouse} if order.recipe.wheelhouse else {})


def read_mirror_certificates(settings: ImageSettings) -> bytes:
    """Return the CA file for a mirror with TLS; empty when it is not needed, as it becomes part of an image's layer.

    Raises: `invalid_input` for an unreadable `images.ca_bundle`.
    """
    return _read_ca_bundle(settings) if settings.mirror.startswith("https://") else b""


def _read_ca_bundle(settings: ImageSettings) -> bytes:
    try:
        return Path(settings.ca_bundle).read_bytes() if settings.ca_bundle else b""
    except FileNotFoundError:
        return b""  # the download tool then uses its own certificates
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot read images.ca_bundle {settings.ca_bundle}", details=str(error)
        ) from error
