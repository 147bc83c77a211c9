"""The option `--project NAME[=FOLDER[:PROFILE]]` of `run` and `repo set`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from sandbox.models.words import SIMPLE_NAME

PROJECT_METAVAR = "NAME=FOLDER[:PROFILE]"


def parse_projects(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The projects by name, with what is said of each; a folder alone is named by its last part. A name alone says
    nothing: it means the project of that name, or a new one in the folder of that name. Raises: a usage error.
    """
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        folder, _, profile = (place if equals else text).partition(":")
        if not equals:
            name = folder.strip("/").rpartition("/")[2]
        if not name or not folder:
            raise click.UsageError(f"'{text[:80]}' is not {PROJECT_METAVAR}, such as api=services/api.")
        name = name if equals else name.lower()
        if not re.fullmatch(SIMPLE_NAME, name):
            raise click.UsageError(
                f"'{name[:40]}' cannot name a project: a name has a-z, 0-9, - and _. Write {PROJECT_METAVAR}."
            )
        if name in found:
            raise click.UsageError(f"Two projects are named '{name[:40]}'.")
        found[name] = ({"subpath": folder} if equals or folder != name else {}) | (
            {"profile": profile} if profile else {}
        )
    return found
