"""Read pyproject.toml: PEP 621, PEP 735 groups, and the tables of Poetry, PDM and uv. Tables of indexes
(`tool.uv.index`, `tool.poetry.source`) are never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from packaging.utils import canonicalize_name

from sandbox.dependencies.collection import MAX_ENTRIES, MAX_GROUPS, Collection
from sandbox.dependencies.poetry_constraints import convert_constraint
from sandbox.dependencies.public_indexes import names_other_index
from sandbox.dependencies.requirement_files import read_named_file
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

FILE = "pyproject.toml"
TEST_NAMES = frozenset(
    {"test", "tests", "testing", "test-dependencies", "pytest", "unittest", "unittests", "hatch-test"}
)
DEVELOPMENT_NAMES = frozenset({"dev", "devel", "develop", "development"})


TEST_TOOLS = re.compile(r"\s*(?:pytest|hypothesis|nose2?)\b(?!-)", re.IGNORECASE)


def classify_list(name: str) -> Role | None:
    """What an extra, a group or an environment of this name is for; None for others, such as `docs`."""
    plain = canonicalize_name(name)
    if plain in TEST_NAMES:
        return Role.TEST
    return Role.DEVELOPMENT if plain in DEVELOPMENT_NAMES else None


def read_pyproject(collection: Collection) -> None:
    """Add what pyproject.toml declares."""
    document = collection.load_toml(FILE)
    project = read_table(document, "project")
    poetry = read_table(document, "tool", "poetry")
    collection.has_other_index = _has_other_index(read_table(document, "tool"))
    name = project.get("name") or poetry.get("name")
    collection.project = canonicalize_name(name) if isinstance(name, str) else ""
    wanted = project.get("requires-python")
    collection.requires_python = wanted if isinstance(wanted, str) and len(wanted) <= 100 else ""
    dynamic = project.get("dynamic")
    is_dynamic = isinstance(dynamic, list) and "dependencies" in dynamic
    collection.declared = bool(project) and not is_dynamic
    collection.computed = is_dynamic and not _read_dynamic(
        collection, read_table(document, "tool", "setuptools", "dynamic")
    )
    if "dependencies" in project:
        collection.add(project["dependencies"], Role.RUNTIME, f"{FILE}: project.dependencies")
    _read_extras(collection, read_table(project, "optional-dependencies"))
    _read_groups(collection, read_table(document, "dependency-groups"))
    _read_default_groups(collection, read_table(document, "tool", "uv").get("default-groups"))
    if "requires" in (build := read_table(document, "build-system")):
        collection.add(build["requires"], Role.BUILD, f"{FILE}: build-system.requires")
    _read_tools(collection, read_table(document, "tool"))


def _has_other_index(tool: Mapping[str, Any]) -> bool:
    places = (("poetry", "source"), ("pdm", "source"), ("uv", "index"))
    return any(names_other_index(read_table(tool, name).get(key)) for name, key in places)


def _read_dynamic(collection: Collection, tables: Mapping[str, Any]) -> bool:
    """Add what setuptools reads from files. Returns whether one is for what the project needs to run."""
    lists = {"": tables.get("dependencies"), **read_table(tables, "optional-dependencies")}
    for name, table in lists.items():
        files = table.get("file") if isinstance(table, dict) else None
        role = classify_list(name) if name else Role.RUNTIME
        if role is None or files is None:
            continue
        for path in files if isinstance(files, list) else [files]:
            read_named_file(collection, str(path), role, f"{FILE}: tool.setuptools.dynamic")
    return isinstance(lists[""], dict)


def _read_extras(collection: Collection, extras: Mapping[str, Any]) -> None:
    for name, texts in extras.items():
        add_extra(collection, name, texts, f"{FILE}: extra {name}")


def add_extra(collection: Collection, name: str, texts: object, origin: str) -> None:
    """Remember the list of an extra; select it if its name says that it is for tests or development."""
    collection.extras.setdefault(canonicalize_name(name), (texts, origin))
    if role := classify_list(name):
        collection.want_extras([name], role)
    else:
        note_unnamed(collection, texts, origin)


def note_unnamed(collection: Collection, texts: object, origin: str) -> None:
    """Remember a list if its name does not say what it is for, and it holds a test tool."""
    if _names_test_tool(texts):
        collection.unnamed.append(partial(collection.add, texts, Role.DEVELOPMENT, origin))


def _names_test_tool(texts: object) -> bool:
    return isinstance(texts, list) and _has_test_tool(texts)


def _has_test_tool(texts: Iterable[object]) -> bool:
    return any(isinstance(text, str) and TEST_TOOLS.match(text) for text in texts)


def _read_groups(collection: Collection, groups: Mapping[str, Any]) -> None:
    if len(groups) > MAX_GROUPS:
        return collection.refuse(f"more than {MAX_GROUPS} dependency groups", RefusalReason.LIMIT, FILE)
    collection.groups = {canonicalize_name(name): entries for name, entries in groups.items()}
    for name in collection.groups:
        if role := classify_list(name):
            add_group(collection, name, role)
        else:
            note_unnamed(collection, expand_group(collection.groups, name), f"{FILE}: dependency group {name}")
    return None


def _read_default_groups(collection: Collection, found: object) -> None:
    """Those that uv installs by default; "all" is each."""
    wanted = list(collection.groups) if found == "all" else found if isinstance(found, list) else []
    for name in wanted:
        if isinstance(name, str) and classify_list(name) is None:
            add_group(collection, name, Role.DEVELOPMENT)


def add_group(collection: Collection, name: str, role: Role) -> None:
    """Add a dependency group of pyproject.toml, if there is one of this name. Once for each role."""
    plain = canonicalize_name(name)
    if plain in collection.groups and (plain, role) not in collection.added_groups:
        collection.added_groups.add((plain, role))
        collection.add(expand_group(collection.groups, plain), role, f"{FILE}: dependency group {plain}")


def expand_group(groups: Mapping[str, Any], name: str) -> list[object]:
    """The entries of a group and of the groups that it includes, each group once. After so many entries as a manifest
    may have, an include stands among them as it is, which is refused.
    """
    texts: list[object] = []
    names = {name}
    pending, looked = [name], 0
    for current in pending:  # grows meanwhile
        entries = groups.get(current)
        for entry in entries if isinstance(entries, list) else [entries]:
            looked += 1
            included = entry.get("include-group") if isinstance(entry, dict) else None
            if not isinstance(included, str) or looked > MAX_ENTRIES:
                texts.append(entry)
            elif (plain := canonicalize_name(included)) not in names:
                names.add(plain)
                pending.append(plain)
            if looked > MAX_ENTRIES:
                return texts
    return texts


def _read_tools(collection: Collection, tool: Mapping[str, Any]) -> None:
    poetry = read_table(tool, "poetry")
    for extra, texts in list_poetry_extras(poetry):
        add_extra(collection, extra, texts, f"{FILE}: extra {extra}")
    read_poetry(collection, poetry, FILE, Role.RUNTIME)
    for place, entries, kind in list_poetry_tables(poetry):
        if kind is None and not collection.has_other_index and _has_test_tool(entries):
            collection.unnamed.append(
                partial(_read_poetry_table, collection, entries, Role.DEVELOPMENT, f"{FILE}: {place}")
            )
    for name, texts in read_table(tool, "pdm", "dev-dependencies").items():
        origin = f"{FILE}: tool.pdm.dev-dependencies.{name}"
        if role := classify_list(name):
            collection.add(texts, role, origin)
        elif not collection.has_other_index:
            note_unnamed(collection, texts, origin)
    if "dev-dependencies" in (uv := read_table(tool, "uv")):
        collection.add(uv["dev-dependencies"], Role.DEVELOPMENT, f"{FILE}: tool.uv.dev-dependencies")


def list_poetry_extras(poetry: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Extras name packages of the list that are optional there; the others are needed anyway."""
    texts = {}
    for name, entry in read_table(poetry, "dependencies").items():
        if isinstance(entry, dict) and entry.get("optional") is True:
            converted = convert_constraint(name, {**entry, "optional": False})
            texts[canonicalize_name(name)] = converted if isinstance(converted, str) else ""
    for extra, wanted in read_table(poetry, "extras").items():
        named = (
            [canonicalize_name(name) for name in wanted if isinstance(name, str)] if isinstance(wanted, list) else []
        )
        yield extra, [texts[name] for name in named if texts.get(name)]


def read_poetry(collection: Collection, poetry: Mapping[str, Any], path: str, role: Role) -> None:
    """Add the lists of `[tool.poetry]` in the manifest `path`. `role`: of what the package needs to run."""
    for place, entries, kind in list_poetry_tables(poetry):
        if kind is not None:
            _read_poetry_table(collection, entries, role if kind is Role.RUNTIME else kind, f"{path}: {place}")


def list_poetry_tables(poetry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Role | None]]:
    """The place of each table of packages, the table, and what it is for; None for a group that no test needs."""
    yield "tool.poetry.dependencies", read_table(poetry, "dependencies"), Role.RUNTIME
    yield "tool.poetry.dev-dependencies", read_table(poetry, "dev-dependencies"), Role.DEVELOPMENT
    for name, group in read_table(poetry, "group").items():
        yield f"tool.poetry.group.{name}", read_table(group, "dependencies"), classify_list(name)


def _read_poetry_table(collection: Collection, entries: Mapping[str, Any], role: Role, origin: str) -> None:
    for name, entry in entries.items():
        if collection.is_full:
            return collection.refuse_rest(origin)
        if canonicalize_name(name) == "python" and isinstance(entry, str):
            continue
        for constraint in entry if isinstance(entry, list) else [entry]:
            wanted = constraint
            if isinstance(constraint, dict) and canonicalize_name(name) in collection.of_tree:
                wanted = {key: value for key, value in constraint.items() if key != "path"}
            converted = convert_constraint(name, wanted)
            if isinstance(converted, RefusalReason):
                collection.refuse(f"{name} = {constraint}", converted, origin)
            elif converted:
                collection.add_text(converted, role, origin)
    return None


def read_table(document: Any, *keys: str) -> Mapping[str, Any]:
    """A nested table; empty if there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
