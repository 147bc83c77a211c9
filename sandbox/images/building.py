"""Build images from their folders, parents first, and say which are present or stale."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.config import ImageSettings
from sandbox.engine import images as engine_images
from sandbox.engine.connection import Engine
from sandbox.engine.images import Build, Image, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.catalogue import PREFIX, Recipe, catalogue, check_name, fingerprint, lineage, tag_of
from sandbox.images.debian import ensure_base, present_base
from sandbox.models import ImageInfo
from sandbox.store.home import Home

RECIPE_LABEL = "space.sandbox.recipe"
NAME_LABEL = "space.sandbox.image"
FOLDER_LABEL = "space.sandbox.folder"
PARENT_LABEL = "space.sandbox.parent"
WHEELHOUSE_LABEL = "space.sandbox.wheelhouse"
SUPERVISOR = "init"
"""The image of the guests' PID 1."""
WITHOUT_CHECKS = frozenset({"base", SUPERVISOR})
"""Images that can be built without a compiler for PID 1 at hand: what it is compiled in comes from them."""
_LOCK_TIMEOUT_S = 2 * engine_images.BUILD_DEADLINE_S
_WHEELHOUSE_LIMIT = 4 * 1024**2
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class Site:
    """Where images are built: engine, home, image settings, and the caller's environment for proxies and index."""

    engine: Engine
    home: Home
    settings: ImageSettings
    environ: Mapping[str, str]


@dataclass(frozen=True)
class _Order:
    """One image to make: a recipe under a name, perhaps with more wheels."""

    recipe: Recipe
    name: str
    wheelhouse: bytes = b""

    @property
    def wheelhouse_sha256(self) -> str:
        return hashlib.sha256(self.wheelhouse).hexdigest() if self.wheelhouse else ""


def build(
    site: Site,
    name: str,
    progress: Progress,
    *,
    no_cache: bool = False,
    wheelhouse: Path | None = None,
    name_as: str | None = None,
) -> ImageInfo:
    """Build the image `name`, its parents, and the guests' PID 1, where missing or stale. All current: does nothing.

    `no_cache` rebuilds `name` itself from scratch. `wheelhouse` (a requirements file) and `name_as` make a variant of
    a Python image that holds more wheels. Safe in several processes at once: one builds, the others wait.
    Raises: `not_found`, `invalid_input`, `image_missing`, `network_error`, `timeout`, `internal`.
    """
    recipes = catalogue(site.home)
    *parents, recipe = lineage(recipes, name)
    order = _variant(recipe, recipes, wheelhouse, name_as)
    with site.home.locked("images", _LOCK_TIMEOUT_S):
        image = ensure_base(site.engine, site.settings, site.environ, progress)
        made: dict[str, Image] = {}
        for parent in parents:
            image = made[parent.name] = _make(site, _Order(parent, parent.name), image, progress)
        image = made[order.name] = _make(site, order, image, progress, no_cache=no_cache)
        if name not in WITHOUT_CHECKS:
            _make_supervisor(site, recipes, made, progress)
    return _info(order.name, image, stale=False)


def _make_supervisor(site: Site, recipes: Mapping[str, Recipe], made: dict[str, Image], progress: Progress) -> None:
    """The image that every guest's PID 1 comes from: whoever builds an image means to run checks in it."""
    image = ensure_base(site.engine, site.settings, site.environ, progress)
    for recipe in lineage(recipes, SUPERVISOR):
        if recipe.name not in made:
            made[recipe.name] = _make(site, _Order(recipe, recipe.name), image, progress)
        image = made[recipe.name]


def _variant(recipe: Recipe, recipes: Mapping[str, Recipe], wheelhouse: Path | None, name_as: str | None) -> _Order:
    if wheelhouse is None and name_as is None:
        return _Order(recipe, recipe.name)
    if wheelhouse is None or name_as is None or not recipe.wheelhouse or name_as in recipes:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Cannot make a variant of the image '{recipe.name}'",
            hint="A wheel-house and a new name go together, on an image whose recipe.toml says 'wheelhouse = true': "
            "sandbox images build python --wheelhouse requirements.txt --as python-acme",
        )
    return _Order(recipe, check_name(name_as), _read_wheelhouse(wheelhouse))


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
            hint="It is a pip requirements file, best pinned with hashes.",
        )
    return content


def _make(site: Site, order: _Order, parent: Image, progress: Progress, *, no_cache: bool = False) -> Image:
    """The image of an order: the one that is there when its recipe is unchanged, else a new one."""
    tag = tag_of(order.name)
    recipe_hash = fingerprint(order.recipe, parent.digest, order.wheelhouse_sha256)
    current = engine_images.inspect(site.engine, tag)
    if current is not None and current.labels.get(RECIPE_LABEL) == recipe_hash and not no_cache:
        progress(f"{tag} is up to date")
        return current
    labels = {
        RECIPE_LABEL: recipe_hash,
        NAME_LABEL: order.name,
        FOLDER_LABEL: order.recipe.name,
        PARENT_LABEL: parent.digest,
        WHEELHOUSE_LABEL: order.wheelhouse_sha256,
    }
    wanted = Build(
        folder=order.recipe.folder,
        tag=tag,
        args=build_args(order.recipe, parent.digest, site.environ),
        labels=labels,
        extra_files=_generated(order, site.settings) if order.recipe.wheelhouse else {},
        network=site.settings.build_network,
        no_cache=no_cache,
    )
    progress(f"building {tag}")
    return engine_images.build(site.engine, wanted, progress)


def build_args(recipe: Recipe, parent_digest: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Build arguments: the parent by digest (its tag may move meanwhile), proxies, and the index for wheels."""
    passed_on = (*_PROXIES, "PIP_INDEX_URL") if recipe.wheelhouse else _PROXIES
    return {"BASE": parent_digest, **{key: environ[key] for key in passed_on if environ.get(key)}}


def _generated(order: _Order, settings: ImageSettings) -> dict[str, bytes]:
    """Files the download stage gets; none of them is part of the recipe, the CA bundle never of the image."""
    try:
        bundle = Path(settings.ca_bundle).read_bytes() if settings.ca_bundle else b""
    except FileNotFoundError:
        bundle = b""  # the download then trusts what pip brings along
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot read images.ca_bundle {settings.ca_bundle}", details=str(error)
        ) from error
    return {".generated/ca.crt": bundle, ".generated/wheelhouse.txt": order.wheelhouse}


def list_images(site: Site) -> tuple[ImageInfo, ...]:
    """Every image of the catalogue and every variant in the engine, by name. Touches no network."""
    recipes = catalogue(site.home)
    base = present_base(site.engine, site.settings)
    known = {name: _state(site, recipes, name, base) for name in sorted(recipes)}
    return tuple(sorted([*known.values(), *_variants(site, recipes, known)], key=lambda info: info.name))


def _state(site: Site, recipes: Mapping[str, Recipe], name: str, base: Image | None) -> ImageInfo:
    """Walk from Debian up: an image is stale when its own recipe changed or anything below it has to be rebuilt."""
    below, stale, image = base, False, None
    for recipe in lineage(recipes, name):
        image = engine_images.inspect(site.engine, tag_of(recipe.name))
        stale = image is not None and (stale or _outdated(recipe, image, below))
        below = image
    return _info(name, image, stale=stale)


def _outdated(recipe: Recipe, image: Image, parent: Image | None) -> bool:
    parent_digest = parent.digest if parent else image.labels.get(PARENT_LABEL, "")
    expected = fingerprint(recipe, parent_digest, image.labels.get(WHEELHOUSE_LABEL, ""))
    return image.labels.get(RECIPE_LABEL) != expected


def _variants(site: Site, recipes: Mapping[str, Recipe], known: Mapping[str, ImageInfo]) -> list[ImageInfo]:
    """Images built with `name_as`. Labels are inherited, so only a tag that agrees with its label counts."""
    found = []
    for tag in engine_images.tags(site.engine, label=WHEELHOUSE_LABEL):
        name = tag.removeprefix(PREFIX).removesuffix(":latest")
        image = engine_images.inspect(site.engine, tag) if tag == tag_of(name) and name not in known else None
        if image is None or image.labels.get(NAME_LABEL) != name:
            continue
        folder = image.labels.get(FOLDER_LABEL, "")
        found.append(
            _info(name, image, stale=folder not in recipes or _variant_stale(site, recipes[folder], image, known))
        )
    return found


def _variant_stale(site: Site, recipe: Recipe, image: Image, known: Mapping[str, ImageInfo]) -> bool:
    parent = known.get(recipe.parent)
    if parent is None or parent.stale:
        return True
    return _outdated(recipe, image, engine_images.inspect(site.engine, parent.tag))


def _info(name: str, image: Image | None, *, stale: bool) -> ImageInfo:
    info = ImageInfo(name=name, tag=tag_of(name), present=image is not None, stale=stale)
    if image is None:
        return info
    figures = {"digest": image.digest, "size_bytes": image.size_bytes, "created_at": image.created_at}
    return info.model_copy(update=figures)
