"""Read package.json of an npm project: what it asks for, as data. No script of it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.dependencies import yaml_subset
from sandbox.dependencies.collection import Collection
from sandbox.dependencies.node_tree import require_folder
from sandbox.dependencies.node_values import read_engines, require_name, require_range, split_alias
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason

FILE = "package.json"
PNPM_WORKSPACE = "pnpm-workspace.yaml"
_CATALOG = "catalog:"
_MORE_MARKS = frozenset("{}()")  # `{libs,apps}/*`, `@(libs|apps)/*`: the folders that they name are not found
GROUPS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")


@dataclass(frozen=True)
class NodeProject:
    """One package.json. `groups`: for each of `GROUPS` the ranges by name, `npm:REAL@RANGE` for an alias. `declared`:
    the same as written, to see whether a lock file is of this package.json. `linked`: names that are no packages of a
    registry, such as members of the workspace. `engines`: the range of Node.js that it names; `*` for none. `patterns`:
    for the folders of more members. `lists_all`: none of those that it lists was left out. `name`: its own, '' for
    none.
    """

    groups: Mapping[str, Mapping[str, str]]
    declared: Mapping[str, Mapping[str, Any]]
    members: tuple[str, ...] = ()
    linked: frozenset[str] = field(default_factory=frozenset)
    engines: str = "*"
    patterns: tuple[str, ...] = ()
    name: str = ""
    lists_all: bool = True


def read_project(collection: Collection, folder: str = "") -> NodeProject | None:
    """The package.json of a folder, '' for the root; None if there is none that can be read."""
    path = f"{folder}/{FILE}" if folder else FILE
    document = collection.load_json(path)
    if not document:
        return None
    declared = {group: found for group in GROUPS if isinstance(found := document.get(group), dict)}
    linked = frozenset(
        name for found in declared.values() for name, text in found.items() if str(text).startswith("workspace:")
    )
    optional_peers = _list_optional_peers(document)
    catalogs = _read_catalogs(collection, declared)
    groups = {}
    for group, found in declared.items():
        leave_out = linked | (optional_peers if group == "peerDependencies" else set())
        groups[group] = _read_group(
            collection, {n: _look_up(n, t, catalogs) for n, t in found.items() if n not in leave_out}, path
        )
    known = len(collection.refused)
    members, patterns = ((), ()) if folder else _read_members(collection, document)
    name = document.get("name")
    return NodeProject(
        groups,
        declared,
        members,
        linked,
        read_engines(document),
        patterns,
        name if isinstance(name, str) else "",
        lists_all=len(collection.refused) == known,
    )


def _read_catalogs(collection: Collection, declared: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """pnpm-workspace.yaml, if a range is of a catalog. Parsed once: each member may name one."""
    texts = (text for found in declared.values() for text in found.values())
    if not any(isinstance(text, str) and text.startswith(_CATALOG) for text in texts):
        return {}
    if collection.catalogs is None:
        collection.catalogs = yaml_subset.parse(collection.load_text(PNPM_WORKSPACE))
    return collection.catalogs


def _look_up(name: str, text: object, catalogs: Mapping[str, Any]) -> object:
    """What a catalog of pnpm-workspace.yaml says for `catalog:` and `catalog:NAME`; else the text itself."""
    if not isinstance(text, str) or not text.startswith(_CATALOG):
        return text
    which = text.removeprefix(_CATALOG).strip()
    named = catalogs.get("catalogs")
    found = named.get(which or "default") if isinstance(named, dict) else None
    if found is None and which in {"", "default"}:
        found = catalogs.get("catalog")
    return found.get(name, text) if isinstance(found, dict) else text


def _read_group(collection: Collection, found: Mapping[str, object], path: str) -> dict[str, str]:
    group: dict[str, str] = {}
    for name, text in found.items():
        if len(group) + len(collection.refused) >= MAX_GROUP:
            collection.refuse(f"more than {MAX_GROUP} entries", RefusalReason.LIMIT, path)
            break
        try:
            real, wanted = split_alias(require_name(name), text.strip() if isinstance(text, str) else "")
            wanted = require_range(wanted if isinstance(text, str) else text)
            group[name] = wanted if real == name else f"npm:{real}@{wanted or '*'}"
        except RefusedTextError as refused:
            collection.refuse(f"{name} {text}", refused.reason, path)
    return group


MAX_GROUP = 1_000
MAX_MEMBERS = 100  # folders and patterns that a workspace lists


def _list_optional_peers(document: Mapping[str, Any]) -> set[str]:
    meta = document.get("peerDependenciesMeta")
    entries = meta.items() if isinstance(meta, dict) else ()
    return {name for name, entry in entries if isinstance(entry, dict) and entry.get("optional") is True}


def _read_members(collection: Collection, document: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders of workspace members, and patterns: they are not expanded here, because lock files name the members."""
    found = document.get("workspaces")
    listed = found.get("packages") if isinstance(found, dict) else found
    if listed is None:
        listed = yaml_subset.read_list(collection.load_text(PNPM_WORKSPACE), "packages")
    members, patterns = [], []
    listed = listed if isinstance(listed, list) else []
    if len(listed) > MAX_MEMBERS:
        collection.refuse(f"more than {MAX_MEMBERS} members", RefusalReason.LIMIT, FILE)
    for text in listed[:MAX_MEMBERS]:
        is_pattern = isinstance(text, str) and ("*" in text or text.startswith("!"))
        try:
            if isinstance(text, str) and not _MORE_MARKS.isdisjoint(text):
                raise RefusedTextError(RefusalReason.PATH)
            if is_pattern and ".." not in text and not text.startswith("/"):
                patterns.append(text)
            elif text != ".":  # of pnpm: the root, which is a project anyway
                members.append(require_folder(text))
        except RefusedTextError as refused:
            collection.refuse(f"workspace {text}", refused.reason, FILE)
    return tuple(members), tuple(patterns)
