"""The catalogue: one folder for each image, shipped or the operator's, and the digests of recipes.

A recipe's digest is part of its images' tags (`space-sandbox/NAME:<first 12 digits>`), so versions, checkouts and homes
with different recipes of one name do not replace each other's images (docs/adr/0037).
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.engine.build_context import is_executable, stat_context_files
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.shipped_files import find_resources
from sandbox.store.home import Home

DOCKERFILE, SETTINGS_FILE = "Dockerfile", "recipe.toml"
TAG_PREFIX = "space-sandbox/"
TAG_DIGITS = 12
"""How many digits of a recipe's digest are in a tag; a label has the whole digest."""
LATEST_TAG = "latest"
IMAGE_NAME = lazy_pattern(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclass(frozen=True)
class Recipe:
    """How one image is built. `parent`: the image it starts from, empty for Debian itself.

    `wheelhouse`: its build downloads wheels, so it gets the package index, and accepts extra wheels.
    `problem`: why this folder cannot be built; the other images of the catalogue still can.
    `written_in`: the folder of its settings, if `folder` is that of the image that it is like.
    """

    name: str
    folder: Path
    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False
    problem: str = ""
    written_in: Path | None = None

    @property
    def file(self) -> Path:
        """The path of its settings file, which may not exist."""
        return (self.written_in or self.folder) / SETTINGS_FILE


class _RecipeFile(BaseModel):
    """`recipe.toml`. The file and each key are optional. `like`: another image, with the same Dockerfile and files."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    like: str = ""
    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False


def read_catalogue(home: Home) -> dict[str, Recipe]:
    """Read every folder with a Dockerfile or settings under the shipped `images/` and `$SANDBOX_HOME/images/`, by name.

    The operator's folder replaces a shipped one of the same name. A damaged recipe is listed with its problem.
    """
    roots, recipes = _roots(home), {}
    for root in roots:
        for folder in sorted(path for path in root.glob("*") if _is_recipe(path)):
            recipes[folder.name] = _read_or_explain(folder, roots)
    return recipes


def read_lineage(home: Home, name: str) -> tuple[Recipe, ...]:
    """Return the same as `lineage`, but read only the recipes of this lineage. Raises: as `lineage`."""
    roots, recipes, wanted = _roots(home), dict[str, Recipe](), name
    while name not in recipes and (folder := _find_folder(roots, name)):
        recipes[name] = _read_or_explain(folder, roots)
        name = recipes[name].parent
    return lineage(recipes or read_catalogue(home), wanted)  # its error names all that there are


def _roots(home: Home) -> tuple[Path, Path]:
    return find_resources("images"), home.root / "images"


def has_recipe(home: Home, name: str) -> bool:
    """Whether the catalogue has this name, without reading a recipe."""
    return _find_folder(_roots(home), name) is not None


def _find_folder(roots: Sequence[Path], name: str) -> Path | None:
    """The folder of a recipe: the operator's replaces a shipped one."""
    if not IMAGE_NAME.fullmatch(name):
        return None
    return next((folder for root in reversed(roots) if _is_recipe(folder := root / name)), None)


def _is_recipe(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (DOCKERFILE, SETTINGS_FILE))


def _read_or_explain(folder: Path, roots: Sequence[Path]) -> Recipe:
    try:
        return read_recipe(folder, roots)
    except SandboxError as error:
        return Recipe(folder.name, folder, problem=f"{error.brief}: {error.details}".removesuffix(": "))


def read_recipe(folder: Path, roots: Sequence[Path] = ()) -> Recipe:
    """Read the recipe of one folder. `roots`: where the image is that it is like, the last one first.

    Raises: `invalid_input` for an invalid name or `recipe.toml`, and for a folder without a Dockerfile that is like no
    other.
    """
    name = require_image_name(folder.name)
    path = folder / SETTINGS_FILE
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        read = _parse_settings(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"Cannot use the recipe {path}", details=describe_errors(error)
        ) from error
    recipe = Recipe(name, folder, read.parent, read.description, read.wheelhouse)
    if read.like:
        return replace(recipe, folder=_find_alike(read.like, path, roots), written_in=folder)
    if not (folder / DOCKERFILE).is_file():
        raise SandboxError(ErrorCode.INVALID_INPUT, f"There is no {folder / DOCKERFILE}, and {path} says no `like`")
    return recipe


@lru_cache(maxsize=64)
def _parse_settings(text: str) -> _RecipeFile:
    """Each check reads the recipes of its image; their text is the same. Raises: TOMLDecodeError, ValidationError."""
    return _RecipeFile.model_validate(parse_toml(text))


def _find_alike(name: str, path: Path, roots: Sequence[Path]) -> Path:
    """The folder with a Dockerfile of this name. Raises: `invalid_input`."""
    for root in reversed(roots):
        if IMAGE_NAME.fullmatch(name) and (root / name / DOCKERFILE).is_file():
            return root / name
    raise SandboxError(ErrorCode.INVALID_INPUT, f"{path} names an image without a Dockerfile: like = {name[:100]!r}")


def require_image_name(name: str) -> str:
    """Return the name. Raises: `invalid_input` for a name that cannot be part of a tag."""
    if not IMAGE_NAME.fullmatch(name):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{name!r} cannot be the name of an image",
            hint="Use lower-case letters and digits, joined by '-', '.' or '_'.",
        )
    return name


def tag_of(name: str, recipe_digest: str = "") -> str:
    """Return the tag of a recipe's images in the engine; without a digest the `latest` tag, which each build moves."""
    return f"{TAG_PREFIX}{name}:{recipe_digest[:TAG_DIGITS] or LATEST_TAG}"


def lineage(recipes: Mapping[str, Recipe], name: str) -> tuple[Recipe, ...]:
    """List the recipes to build for `name`, in order: the one on Debian first, `name` last.

    Raises: `not_found` for an unknown name, `invalid_input` for a damaged recipe and for parents that are unknown or
    form a cycle.
    """
    if name not in recipes:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no image folder named '{name}'",
            hint=f"Available: {', '.join(sorted(recipes))}. Add your own under $SANDBOX_HOME/images/NAME/.",
        )
    line = [_require_usable(recipes[name])]
    while parent := line[0].parent:
        if parent not in recipes or recipes[parent] in line:
            why = "which is its own descendant" if parent in recipes else "which does not exist"
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The image '{line[0].name}' starts from '{parent}', {why}",
                hint=f"Set `parent` in {line[0].file} to the name of an image folder, or to '' for Debian itself.",
            )
        line.insert(0, _require_usable(recipes[parent]))
    return tuple(line)


def _require_usable(recipe: Recipe) -> Recipe:
    if recipe.problem:
        hint = f"Correct {recipe.folder}, or move it to another place."
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The image '{recipe.name}' cannot be built", details=recipe.problem, hint=hint
        )
    return recipe


def recipe_digests(line: Sequence[Recipe], debian: str) -> tuple[str, ...]:
    """Return the digest of each recipe of a lineage: over its files and the recipes below it, not over images.

    `debian`: the configured Debian image, empty for the default. Images with one digest were built from the same
    recipes. A rebuilt parent makes an image stale, but does not change its digest.
    """
    digests: list[str] = []
    for recipe in line:
        digests.append(fingerprint_recipe(recipe, digests[-1] if digests else debian))
    return tuple(digests)


def fingerprint_recipe(recipe: Recipe, parent: str, wheelhouse_sha256: str = "") -> str:
    """SHA-256 (hex) over all inputs of a build: the folder's files, the parent, the extra wheels."""
    seen = hashlib.sha256()
    for part in (parent, wheelhouse_sha256):
        seen.update(part.encode() + b"\0")
    seen.update(_hash_contents(recipe.folder, _stamps(recipe.folder)))
    return seen.hexdigest()


_Stamp = tuple[str, int, int, int, int, int]


def _stamps(folder: Path) -> tuple[_Stamp, ...]:
    return tuple(
        (relative, seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        for relative, seen in sorted(stat_context_files(folder).items())
    )


@lru_cache(maxsize=64)
def _hash_contents(folder: Path, stamps: tuple[_Stamp, ...]) -> bytes:
    """Return the hashed content of a folder. Cached by its files' stat data: each run of a check needs it."""
    lines = bytearray()
    for relative, *_ in stamps:
        path = folder / relative
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        lines += f"{relative}\0{int(is_executable(path))}\0{content}\0".encode()
    return bytes(lines)
