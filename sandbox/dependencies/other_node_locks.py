"""Read pnpm-lock.yaml and yarn.lock: which package needs which. Addresses in them are never used.

They do not say where packages are placed, as package-lock.json does, so the places are found here (node_tree.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sandbox.dependencies import yaml_subset
from sandbox.dependencies.collection import LOCK_BYTES, MAX_LOCKED, Collection
from sandbox.dependencies.node_lock import LOCKED_GROUPS, read_hashes
from sandbox.dependencies.node_manifest import NodeProject
from sandbox.dependencies.node_members import NodeWorkspace
from sandbox.dependencies.node_tree import Package, Placed, lay_out, require_folder, require_systems
from sandbox.dependencies.node_values import (
    find_reason,
    read_engines,
    require_name,
    require_version,
    split_alias,
    split_spec,
)
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason

PNPM = "pnpm-lock.yaml"
YARN = "yarn.lock"
_ELSEWHERE = re.compile(
    r"^(?:link|file|workspace|portal|patch|exec|git[+@:]|github|https?):|^(?:[./]|~/)|://|\.git(?:#|$)"
)

_NO_REGISTRY = (RefusalReason.VERSION_CONTROL, RefusalReason.URL, RefusalReason.PATH)
_PUBLIC = ("https://registry.yarnpkg.com/", "https://registry.npmjs.org/")
_Needs = Mapping[str, str]
_ReadWorkspace = Callable[[], NodeWorkspace]
_ReadGraph = Callable[[Collection, str, _ReadWorkspace], tuple[dict[str, Package], dict[str, _Needs]]]


def read_other_locks(collection: Collection, workspace: _ReadWorkspace) -> list[Placed]:
    """What the first of these lock files leads to; empty if there is none. `workspace`: reads the members, which is
    done after the lock file is read: they may be more than are read, and only yarn.lock needs them.
    """
    readers: Mapping[str, _ReadGraph] = {PNPM: _read_pnpm, YARN: _read_yarn}
    for path, read in readers.items():
        if not (text := collection.load_text(path, LOCK_BYTES)):
            continue
        packages, projects = read(collection, text, workspace)
        if collection.is_cut:
            return []
        try:
            placed = lay_out(packages, projects)
            for one in placed:
                _ = one.file  # refused here if it is too long
        except RefusedTextError as refused:
            collection.refuse(path, refused.reason, path)
            collection.is_cut = True
            return []
        return placed
    return []


def _read_pnpm(
    collection: Collection, text: str, _workspace: _ReadWorkspace
) -> tuple[dict[str, Package], dict[str, _Needs]]:
    """The formats 6 and 9. Keys: `NAME@VERSION(PEERS)`; format 6 has a slash before them."""
    document = yaml_subset.parse(text)
    described, snapshots = _map(document, "packages"), _map(document, "snapshots")
    packages: dict[str, Package] = {}
    for shown, entry in (snapshots or described).items():
        if len(packages) + len(collection.refused) >= MAX_LOCKED:
            collection.cut_lock(PNPM)
            break
        key = shown.removeprefix("/")
        about = _map(described, key.partition("(")[0]) if snapshots else _as_map(entry)
        try:
            packages[key] = _read_pnpm_package(collection, key, about, _as_map(entry))
        except RefusedTextError as refused:
            collection.refuse(key, refused.reason, PNPM)
    importers = _map(document, "importers") or {".": document}
    return packages, dict(_read_importers(collection, importers))


def _read_pnpm_package(collection: Collection, key: str, about: Mapping[str, Any], entry: Mapping[str, Any]) -> Package:
    name, _, version = key.partition("(")[0].rpartition("@")
    resolution = _map(about, "resolution")
    if "integrity" not in resolution or ("tarball" in resolution and ":" in version):
        raise RefusedTextError(find_reason(version))
    return Package(
        require_name(name),
        require_version(version),
        read_hashes(collection, key, resolution.get("integrity"), PNPM),
        require_systems(about),
        {n: k for group in LOCKED_GROUPS for n, k in _list_pnpm_needs(_map(entry, group))},
        frozenset(_map(entry, "optionalDependencies")),
        engines=read_engines(about),
    )


def _list_pnpm_needs(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names with keys: a value is a version with peers, or a key, of an alias."""
    for name, value in found.items():
        text = _version_of(value)
        if not isinstance(text, str) or not _is_name(name) or _is_elsewhere(value):
            continue  # recorded where package.json asks for it; what is no name is no folder of `node_modules`
        is_key = text.startswith("/") or "@" in text.partition("(")[0]
        yield name, text.removeprefix("/") if is_key else f"{name}@{text}"


def _version_of(value: object) -> object:
    return value.get("version") if isinstance(value, dict) else value


def _is_elsewhere(value: object) -> bool:
    text = _version_of(value)
    return isinstance(text, str) and _ELSEWHERE.search(text.removeprefix("/")) is not None


def _read_importers(collection: Collection, importers: Mapping[str, Any]) -> Iterator[tuple[str, _Needs]]:
    for path, entry in importers.items():
        try:
            folder = "" if path == "." else require_folder(path)
        except RefusedTextError as refused:
            collection.refuse(f"workspace {path}", refused.reason, PNPM)
            continue
        groups = [_map(_as_map(entry), group) for group in LOCKED_GROUPS]
        collection.of_tree |= {name for group in groups for name, found in group.items() if _is_elsewhere(found)}
        yield folder, {name: key for group in groups for name, key in _list_pnpm_needs(group)}


_YARN_FIELD = re.compile(r'( +)("[^"]*"|[^\s":]+):? ?(?:"([^"]*)"|(.*))', re.DOTALL)  # `.` never fails


def _read_yarn(
    collection: Collection, text: str, workspace: _ReadWorkspace
) -> tuple[dict[str, Package], dict[str, _Needs]]:
    """Both formats: an entry has all ranges that led to it as its keys. The newer one has entries of members, too."""
    packages: dict[str, Package] = {}
    wanted: dict[str, _Needs] = {}
    elsewhere, private = set[str](), set[str]()
    for number, (keys, entry) in enumerate(_split_yarn(text)):
        if number >= MAX_LOCKED:
            collection.cut_lock(YARN)
            break
        try:
            if (folder := _find_member(entry)) is not None:
                elsewhere.add(split_spec(keys[0])[0])
                wanted[folder] = _list_yarn_needs(_map(entry, "dependencies"))
                continue
            package = _read_yarn_package(collection, keys[0], entry)
        except RefusedTextError as refused:
            collection.refuse(keys[0], refused.reason, YARN)
            elsewhere |= {split_spec(keys[0])[0]} if refused.reason in _NO_REGISTRY else set()
            continue
        packages |= dict.fromkeys(map(_plain_key, keys), package) if package else {}
        private |= set(map(_plain_key, keys)) if _is_of_other_registry(entry) else set()
    collection.of_tree |= elsewhere - {split_spec(key)[0] for key in packages}  # a patch is of one of a registry
    for folder, project in workspace().projects.items():
        wanted[folder] = {**wanted.get(folder, {}), **_list_declared(project)}
    for folder in filter(None, wanted):  # members only: those of the root were always asked for
        wanted[folder] = {name: key for name, key in wanted[folder].items() if key not in private}
    return _join_keys(packages, {"": wanted.pop(""), **wanted})


def _is_of_other_registry(entry: Mapping[str, Any]) -> bool:
    """Whether the lock file says that a package was taken from another registry than the public one, which may have
    another package of its name.
    """
    resolved = str(entry.get("resolved", ""))
    is_public = not resolved or resolved.startswith(_PUBLIC)
    return not is_public or "::__archiveUrl=" in str(entry.get("resolution", ""))


def _find_member(entry: Mapping[str, Any]) -> str | None:
    """The folder of an entry that is a member of the workspace, '' for the root; None for another. Raises:
    RefusedTextError.
    """
    folder = str(entry.get("resolution", "")).partition("@workspace:")[2]
    return (require_folder(folder) if folder != "." else "") if folder else None


def _list_declared(project: NodeProject) -> _Needs:
    declared = (project.declared.get(group) or {} for group in LOCKED_GROUPS)
    return {name: key for found in declared for name, key in _list_yarn_needs(found).items()}


def _list_yarn_needs(found: Mapping[str, Any]) -> _Needs:
    """Keys by name: what is no name is no folder of `node_modules`."""
    return {n: _plain_key(f"{n}@{t}") for n, t in found.items() if isinstance(t, str) and _is_name(n)}


def _join_keys(
    packages: Mapping[str, Package], wanted: Mapping[str, _Needs]
) -> tuple[dict[str, Package], dict[str, _Needs]]:
    """With one key for each package."""
    same = {id(package): key for key, package in reversed(list(packages.items()))}
    unique = {key: packages[key] for key in same.values()}
    resolve = {key: same[id(package)] for key, package in packages.items()}
    for key, package in unique.items():
        needs = {name: resolve[found] for name, found in package.needs.items() if found in resolve}
        unique[key] = Package(package.name, package.version, package.hashes, {}, needs, package.optional_needs)
    return unique, {
        folder: {name: resolve[key] for name, key in needs.items() if key in resolve}
        for folder, needs in wanted.items()
    }


def _split_yarn(text: str) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Keys and fields of each entry; `dependencies` and the like are maps."""
    keys: list[str] = []
    entry: dict[str, Any] = {}
    group: dict[str, str] = {}
    for line in text.split("\n"):
        if line[:1] not in {" ", "#", ""}:
            if keys and "__metadata" not in keys:
                yield keys, entry
            keys = [part.strip().strip('"') for part in line.rstrip().removesuffix(":").replace('"', "").split(", ")]
            entry = {}
        elif (match := _YARN_FIELD.fullmatch(line.rstrip())) and keys:
            name, value = match[2].strip('"'), match[3] if match[3] is not None else match[4]
            if len(match[1]) > 2:
                group[name] = value
            elif value:
                entry[name] = value
            else:
                group = entry[name] = {}
    if keys and "__metadata" not in keys:
        yield keys, entry


def _read_yarn_package(collection: Collection, key: str, entry: Mapping[str, Any]) -> Package | None:
    """None for a member of the workspace, and for a patch of yarn itself. Raises: RefusedTextError."""
    resolution = str(entry.get("resolution", ""))
    name, wanted = split_spec(key)
    if "@workspace:" in key or "@workspace:" in resolution or "#optional!builtin" in key:
        return None
    resolved = str(entry.get("resolved", ""))
    if _ELSEWHERE.search(wanted) or (resolution and "@npm:" not in resolution):
        raise RefusedTextError(find_reason(wanted))
    if resolved and not resolved.startswith(("https://", "http://")):
        raise RefusedTextError(find_reason(resolved))
    real = split_spec(resolution)[0] if resolution else split_alias(name, wanted)[0]
    needs = {**_map(entry, "dependencies"), **_map(entry, "optionalDependencies")}
    optional = {*_map(entry, "optionalDependencies"), *_map(entry, "dependenciesMeta")}
    return Package(
        require_name(real),
        require_version(entry.get("version")),
        read_hashes(collection, key, entry.get("integrity"), YARN),
        {},
        _list_yarn_needs(needs),
        frozenset(optional),
    )


def _plain_key(key: str) -> str:
    """Without `npm:` before a range, which only the newer format writes."""
    name, wanted = split_spec(key)
    rest = wanted.removeprefix("npm:")
    return f"{name}@{wanted if '@' in rest[1:] else rest}"


def _is_name(text: str) -> bool:
    try:
        return bool(require_name(text))
    except RefusedTextError:
        return False


def _map(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    return _as_map(entry.get(key))


def _as_map(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
