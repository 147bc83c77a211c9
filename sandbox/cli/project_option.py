"""The option `--project NAME=FOLDER[:PROFILE]` of `run` and `repo set`."""

from __future__ import annotations

from collections.abc import Iterable

import click

PROJECT_METAVAR = "NAME=FOLDER[:PROFILE]"


def parse_projects(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The projects by name; a folder alone is named by its last part. Raises: a usage error."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        folder, _, profile = (place if equals else text).partition(":")
        if not equals:
            name = folder.strip("/").rpartition("/")[2]
        if not name or not folder:
            raise click.UsageError(f"'{text[:80]}' is not {PROJECT_METAVAR}, such as api=services/api.")
        if name in found:
            raise click.UsageError(f"Two projects are named '{name[:40]}'.")
        found[name] = {"subpath": folder, "profile": profile}
    return found
