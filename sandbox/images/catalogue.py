"""The catalogue: one folder an image, shipped or the operator's, and the digest of a recipe.

A recipe's digest names its images in the engine (`space-sandbox/NAME:<first 12 digits>`), so that versions, checkouts
and homes with different recipes of one name do not replace each other's images (docs/adr/0037).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.config import resources
from sandbox.document_errors import mistakes
from sandbox.engine.images import context_files, is_executable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home

PREFIX = "space-sandbox/"
TAG_DIGITS = 12
"""How much of a recipe's digest is in a tag; the whole of it is in a label."""
LATEST = "latest"
NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclass(frozen=True)
class Recipe:
    """How one image is made. `parent`: the image it starts from, empty for Debian itself.

    `wheelhouse`: its build downloads wheels, so it gets the package index, and can be given more wheels.
    `problem`: why this folder makes no image; the others of the catalogue go on.
    """

    name: str
    folder: Path
    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False
    problem: str = ""

    @property
    def file(self) -> Path:
        """Where its keys are, if it has any."""
        return self.folder / "recipe.toml"


class _RecipeFile(BaseModel):
    """`recipe.toml`. Every key may be left out, and the file too."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False


def catalogue(home: Home) -> dict[str, Recipe]:
    """Every folder with a Dockerfile under the shipped `images/` and `$SANDBOX_HOME/images/`, by name.

    The operator's folder wins over a shipped one of the same name. A damaged recipe is listed with its problem.
    """
    found = {}
    for root in _roots(home):
        for dockerfile in sorted(root.glob("*/Dockerfile")):
            recipe = _read_or_explain(dockerfile.parent)
            found[recipe.name] = recipe
    return found


def catalogue_line(home: Home, name: str) -> tuple[Recipe, ...]:
    """What `lineage` answers, reading no more recipes than these. Raises: as `lineage`."""
    recipes: dict[str, Recipe] = {}
    wanted = name
    while name not in recipes and has_recipe(home, name):
        folder = next(root / name for root in reversed(_roots(home)) if (root / name / "Dockerfile").is_file())
        recipes[name] = _read_or_explain(folder)
        name = recipes[name].parent
    return lineage(recipes, wanted)


def _roots(home: Home) -> tuple[Path, Path]:
    return resources("images"), home.root / "images"


def has_recipe(home: Home, name: str) -> bool:
    """Whether the catalogue has this name; reads no recipe."""
    return NAME.fullmatch(name) is not None and any((root / name / "Dockerfile").is_file() for root in _roots(home))


def _read_or_explain(folder: Path) -> Recipe:
    try:
        return read_recipe(folder)
    except SandboxError as error:
        return Recipe(folder.name, folder, problem=f"{error.brief}: {error.details}".removesuffix(": "))


def read_recipe(folder: Path) -> Recipe:
    """The recipe of one folder. Raises: `invalid_input` for a bad name or `recipe.toml`."""
    name = check_name(folder.name)
    path = folder / "recipe.toml"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        read = _RecipeFile.model_validate(tomllib.loads(text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"Cannot use the recipe {path}", details=mistakes(error)) from error
    return Recipe(name, folder, read.parent, read.description, read.wheelhouse)


def check_name(name: str) -> str:
    """The name itself. Raises: `invalid_input` for one that cannot be part of a tag."""
    if not NAME.fullmatch(name):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{name!r} cannot be the name of an image",
            hint="Use lower-case letters and digits, joined by '-', '.' or '_'.",
        )
    return name


def tag_of(name: str, recipe_digest: str = "") -> str:
    """The tag of the images of one recipe in the engine; without a digest the one that the last build moved."""
    return f"{PREFIX}{name}:{recipe_digest[:TAG_DIGITS] or LATEST}"


def lineage(recipes: Mapping[str, Recipe], name: str) -> tuple[Recipe, ...]:
    """The recipes to build for `name`, in order: the one on Debian first, `name` last.

    Raises: `not_found` for an unknown name, `invalid_input` for a damaged recipe, and for parents that are unknown or
    form a circle.
    """
    if name not in recipes:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no image folder named '{name}'",
            hint=f"There are: {', '.join(sorted(recipes))}. Add your own under $SANDBOX_HOME/images/NAME/.",
        )
    line = [_require_usable(recipes[name])]
    while parent := line[0].parent:
        if parent not in recipes or recipes[parent] in line:
            why = "which is its own descendant" if parent in recipes else "which does not exist"
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The image '{line[0].name}' starts from '{parent}', {why}",
                hint=f"`parent` in {line[0].file} is the name of an image folder, or empty for Debian itself.",
            )
        line.insert(0, _require_usable(recipes[parent]))
    return tuple(line)


def _require_usable(recipe: Recipe) -> Recipe:
    if recipe.problem:
        hint = f"Correct {recipe.folder}, or move it away."
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The image '{recipe.name}' cannot be built", details=recipe.problem, hint=hint
        )
    return recipe


def recipe_digests(line: Sequence[Recipe], debian: str) -> tuple[str, ...]:
    """The digest of each recipe of a lineage: its files and all that is below it, by content and not by image.

    `debian`: the configured Debian image, empty for the usual one. Images of one digest were made by the same recipes;
    another build of a parent makes an image stale, not another one.
    """
    found: list[str] = []
    for recipe in line:
        found.append(fingerprint(recipe, found[-1] if found else debian))
    return tuple(found)


def fingerprint(recipe: Recipe, parent: str, wheelhouse_sha256: str = "") -> str:
    """SHA-256 (hex) over all that decides what a build makes: the folder's files, the parent, the extra wheels."""
    seen = hashlib.sha256()
    for part in (parent, wheelhouse_sha256):
        seen.update(part.encode() + b"\0")
    seen.update(_contents(recipe.folder, _stamps(recipe.folder)))
    return seen.hexdigest()


_Stamp = tuple[str, int, int, int, int, int]


def _stamps(folder: Path) -> tuple[_Stamp, ...]:
    found = []
    for relative in context_files(folder):
        seen = (folder / relative).stat()
        found.append((relative, seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return tuple(found)


@lru_cache(maxsize=64)
def _contents(folder: Path, stamps: tuple[_Stamp, ...]) -> bytes:
    """What is hashed of a folder. Kept by its files' stamps: each run of a check asks for it."""
    lines = bytearray()
    for relative, *_ in stamps:
        path = folder / relative
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        lines += f"{relative}\0{int(is_executable(path))}\0{content}\0".encode()
    return bytes(lines)
