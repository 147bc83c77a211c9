"""Read the settings of Hatch, in pyproject.toml or hatch.toml: lists of environments, and what build hooks need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.pyproject import FILE as PYPROJECT
from sandbox.dependencies.pyproject import add_group, classify_list, note_unnamed, read_table
from sandbox.models.dependencies import RequirementRole as Role

FILE = "hatch.toml"
_LISTS = ("dependencies", "extra-dependencies")


def read_hatch(collection: Collection) -> None:
    """Add what Hatch installs for tests and for the build. Where pyproject.toml names another index, only the lists of
    its own environments whose names say that they are for tests.
    """
    _read_settings(
        collection, read_table(collection.load_toml(PYPROJECT), "tool", "hatch"), f"{PYPROJECT}: tool.hatch."
    )
    if not collection.has_other_index:
        _read_settings(collection, collection.load_toml(FILE), f"{FILE}: ")


def _read_settings(collection: Collection, settings: Mapping[str, Any], place: str) -> None:
    for name, environment in read_table(settings, "envs").items():
        _read_environment(collection, name, read_table(environment), f"{place}envs.{name}")
    for where, hook in () if collection.has_other_index else _list_hooks(read_table(settings, "build")):
        if "dependencies" in hook:
            collection.add(hook["dependencies"], Role.BUILD, f"{place}{where}.dependencies")


def _read_environment(collection: Collection, name: str, table: Mapping[str, Any], origin: str) -> None:
    role = Role.DEVELOPMENT if name == "default" else classify_list(name)
    for key in (key for key in _LISTS if key in table):
        if role:
            collection.add(table[key], role, f"{origin}.{key}")
    if role is None:
        lists = () if collection.has_other_index else (table.get(key) for key in _LISTS)
        note_unnamed(collection, [text for found in lists if isinstance(found, list) for text in found], origin)
        return
    collection.want_extras(_list_texts(table.get("features")), role)
    for group in _list_texts(table.get("dependency-groups")):
        add_group(collection, group, role)


def _list_hooks(build: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those of each build, and those of wheels, which are what a check builds."""
    wheel = read_table(build, "targets", "wheel")
    yield "build.targets.wheel", wheel
    for where, table in (("build", build), ("build.targets.wheel", wheel)):
        for name, hook in read_table(table, "hooks").items():
            yield f"{where}.hooks.{name}", read_table(hook)


def _list_texts(found: object) -> list[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
