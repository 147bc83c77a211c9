"""Read package-lock.json and npm-shrinkwrap.json: names, versions, hashes and places. Addresses are never used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.dependencies.collection import LOCK_BYTES, MAX_LOCKED, Collection
from sandbox.dependencies.node_manifest import NodeProject
from sandbox.dependencies.node_tree import MAX_DEPTH, Package, Placed, parse_place, require_systems
from sandbox.dependencies.node_values import (
    find_reason,
    parse_integrity,
    read_engines,
    require_name,
    require_version,
    split_alias,
)
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason

LOCK_FILES = ("npm-shrinkwrap.json", "package-lock.json")
_PATH_CHARS = 3_000  # of a place: MAX_DEPTH names; a longer one would be repeated for each package below it
LOCKED_GROUPS = ("dependencies", "devDependencies", "optionalDependencies")


def read_npm_lock(collection: Collection, project: NodeProject) -> list[Placed]:
    """What the lock file places; empty if there is none, or if it is older than package.json."""
    for path in LOCK_FILES:
        document = collection.load_json(path, LOCK_BYTES)
        if not document:
            continue
        packages = document.get("packages")
        _note_elsewhere(collection, packages, document.get("dependencies"))
        if isinstance(packages, dict):
            if not _is_of(packages.get(""), project):
                collection.refuse("it is older than package.json", RefusalReason.VERSION, path)
                return []
            entries: Iterator[tuple[str, Any]] = iter(packages.items())
        else:
            entries = _flatten(document.get("dependencies"), "")
        placed = list(_read_entries(collection, entries, path))
        return [] if collection.is_cut else placed
    return []


def _note_elsewhere(collection: Collection, packages: object, dependencies: object) -> None:
    """Say the collection what the project takes from the tree or from git: no registry is asked for these names, also
    if the lock file is not followed.
    """
    places = packages if isinstance(packages, dict) else {}
    first_format = dependencies if isinstance(dependencies, dict) else {}
    entries = (*places.items(), *((f"node_modules/{name}", entry) for name, entry in first_format.items()))
    collection.of_tree |= {
        place.rpartition("node_modules/")[2]
        for place, entry in entries
        if place.count("node_modules/") == 1 and isinstance(entry, dict) and _is_elsewhere(entry)
    }


def _is_elsewhere(entry: Mapping[str, Any]) -> bool:
    resolved, version = entry.get("resolved"), entry.get("version")
    return (
        entry.get("link") is True
        or (isinstance(resolved, str) and not resolved.startswith(("https://", "http://")))
        or (isinstance(version, str) and ":" in version and not version.startswith("npm:"))
    )


def _read_entries(collection: Collection, entries: Iterator[tuple[str, Any]], path: str) -> Iterator[Placed]:
    for number, (place, entry) in enumerate(entries):
        if number >= MAX_LOCKED:
            return collection.cut_lock(path)
        if not isinstance(entry, dict):
            collection.refuse(place, RefusalReason.SYNTAX, path)
        elif "node_modules" in place.split("/") and not _is_of_others(entry):
            try:
                yield _read_entry(collection, place, entry, path)
            except RefusedTextError as refused:
                collection.refuse(f"{place} {entry.get('resolved', entry.get('version'))}", refused.reason, path)


def _read_entry(collection: Collection, path: str, entry: Mapping[str, Any], origin: str) -> Placed:
    place = parse_place(path)
    resolved = entry.get("resolved")
    if isinstance(resolved, str) and not resolved.startswith(("https://", "http://")):
        raise RefusedTextError(find_reason(resolved))
    version = entry.get("version")
    name = require_name(entry.get("name", place.names[-1]))
    if isinstance(version, str) and version.startswith("npm:"):  # an alias in the first format
        name, version = split_alias(name, version)
    package = Package(
        name, require_version(version), read_hashes(collection, path, entry.get("integrity"), origin),
        require_systems(entry), engines=read_engines(entry),
    )  # fmt: skip
    placed = Placed(place, package, any(entry.get(key) is True for key in ("optional", "devOptional")))
    _ = placed.file  # refused here if it is too long
    return placed


def read_hashes(collection: Collection, shown: str, integrity: object, origin: str) -> tuple[str, ...]:
    """The hash of a package. One that is too weak is recorded, and the package is taken by its version."""
    try:
        return (parse_integrity(integrity),) if integrity is not None else ()
    except RefusedTextError as refused:
        collection.refuse(f"{shown} {integrity}", refused.reason, origin)
        return ()


def _is_of_others(entry: Mapping[str, Any]) -> bool:
    """Whether it comes with another package, or is a folder of the project."""
    return any(entry.get(key) is True for key in ("link", "inBundle", "bundled", "extraneous"))


def _is_of(root: object, project: NodeProject) -> bool:
    locked = root if isinstance(root, dict) else {}
    return all(
        (project.declared.get(group) or {}).items()
        <= {**_dict(locked, "optionalDependencies"), **_dict(locked, group)}.items()
        for group in LOCKED_GROUPS
        if project.declared.get(group)
    )


def _dict(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, dict) else {}


def _flatten(dependencies: object, above: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The entries of the first format, which are nested as their places are."""
    if not isinstance(dependencies, dict) or depth > MAX_DEPTH:
        return
    for name, entry in dependencies.items():
        path = f"{above}node_modules/{name}"
        yield path, entry
        if isinstance(entry, dict) and len(path) <= _PATH_CHARS:
            yield from _flatten(entry.get("dependencies"), f"{path}/", depth + 1)
