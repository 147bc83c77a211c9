"""The catalogue: one folder an image, shipped or the operator's, and the fingerprint that tells when one is stale."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.config import resources
from sandbox.engine.images import context_files, is_executable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.mistakes import mistakes
from sandbox.store.home import Home

PREFIX = "space-sandbox/"
NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


@dataclass(frozen=True)
class Recipe:
    """How one image is made. `parent`: the image it starts from, empty for Debian itself.

    `wheelhouse`: its build downloads wheels, so it gets the host's CA bundle and index, and can be given more wheels.
    """

    name: str
    folder: Path
    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False


class _RecipeFile(BaseModel):
    """`recipe.toml`. Every key may be left out, and the file too."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    parent: str = "base"
    description: str = ""
    wheelhouse: bool = False


def catalogue(home: Home) -> dict[str, Recipe]:
    """Every folder with a Dockerfile under the shipped `images/` and `$SANDBOX_HOME/images/`, by name.

    The operator's folder wins over a shipped one of the same name. Raises: `invalid_input` for a damaged recipe.
    """
    found = {}
    for root in (resources("images"), home.root / "images"):
        for dockerfile in sorted(root.glob("*/Dockerfile")):
            recipe = read_recipe(dockerfile.parent)
            found[recipe.name] = recipe
    return found


def has_recipe(home: Home, name: str) -> bool:
    """Whether the catalogue has this name; reads no recipe."""
    roots = (resources("images"), home.root / "images")
    return NAME.fullmatch(name) is not None and any((root / name / "Dockerfile").is_file() for root in roots)


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


def tag_of(name: str) -> str:
    """The tag a catalogue image gets in the engine."""
    return f"{PREFIX}{name}:latest"


def lineage(recipes: Mapping[str, Recipe], name: str) -> tuple[Recipe, ...]:
    """The recipes to build for `name`, in order: the one on Debian first, `name` last.

    Raises: `not_found` for an unknown name, `invalid_input` for parents that are unknown or form a circle.
    """
    if name not in recipes:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no image folder named '{name}'",
            hint=f"There are: {', '.join(sorted(recipes))}. Add your own under $SANDBOX_HOME/images/NAME/.",
        )
    line = [recipes[name]]
    while parent := line[0].parent:
        if parent not in recipes or recipes[parent] in line:
            why = "which is its own descendant" if parent in recipes else "which does not exist"
            raise SandboxError(ErrorCode.INVALID_INPUT, f"The image '{line[0].name}' starts from '{parent}', {why}")
        line.insert(0, recipes[parent])
    return tuple(line)


def fingerprint(recipe: Recipe, parent_digest: str, wheelhouse_sha256: str = "") -> str:
    """SHA-256 (hex) over all that decides what a build makes: the folder's files, the parent, the extra wheels."""
    seen = hashlib.sha256()
    for part in (parent_digest, wheelhouse_sha256):
        seen.update(part.encode() + b"\0")
    for relative in context_files(recipe.folder):
        path = recipe.folder / relative
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        seen.update(f"{relative}\0{int(is_executable(path))}\0{content}\0".encode())
    return seen.hexdigest()
