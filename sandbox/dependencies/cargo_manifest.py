"""Read the Cargo.toml of a project and of its workspace: which crates of the registry they ask for, and how.

`[patch]`, `[replace]`, `[registries]` and `.cargo/config.toml` are not read: registries are the operator's choice.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.dependencies.cargo_lock import CRATE_NAME
from sandbox.dependencies.cargo_lock import FILE as LOCK_FILE
from sandbox.dependencies.collection import LOCK_BYTES, MAX_LOOKS, Collection
from sandbox.dependencies.folder_patterns import find_folders, is_pattern, resolve_folder
from sandbox.models.dependencies import RefusalReason

FILE = "Cargo.toml"
MAX_WISHES = 4_000  # of all manifests, different ones
MAX_FEATURES = 100_000  # of all different wishes
MAX_READ_FEATURES = 2_000_000
"""Of all tables, about two seconds: a long list of the workspace may be inherited by thousands of them. A workspace of
500 members with 100 dependencies of ten features each has half a million, of which most are the same wishes."""
_TABLES = ("dependencies", "dev-dependencies", "dev_dependencies", "build-dependencies", "build_dependencies")
_REQUIREMENT = re.compile(r"[0-9A-Za-z.*^~<>=,+ -]{1,100}")
_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]{0,63}")
_ELSEWHERE = {
    "git": RefusalReason.VERSION_CONTROL,
    "registry": RefusalReason.URL,
    "registry-index": RefusalReason.URL,
}


@dataclass(frozen=True, order=True)
class CrateWish:
    """A crate that a manifest asks for. `requirement`: as in Cargo.toml, such as `1.2` or `>=1, <3`."""

    name: str
    requirement: str
    features: tuple[str, ...] = ()
    default_features: bool = True


def read_cargo_manifests(collection: Collection, top: str = "", root: str = "") -> tuple[CrateWish, ...]:
    """The crates that the project in the folder `top`, the members of its workspace and the folders that they name ask
    for. `root`: of the workspace.

    With all features, kinds and targets, as Cargo.lock lists them. What cannot be used is in `collection.refused`.
    """
    workspace = _table(collection.load_toml(posixpath.join(root, FILE)), "workspace")
    folders = dict.fromkeys([top, root, *_list_members(collection, workspace, root)])
    reader = _ManifestReader(collection, root, _table(workspace, "dependencies"), folders)
    pending = list(folders)
    while pending:
        known = len(folders)
        for folder in pending:
            reader.read(folder)
        pending = list(folders)[known:]
    return tuple(sorted(reader.wishes))


@dataclass
class _ManifestReader:
    """Reads one manifest after the other. `inherited`: `[workspace.dependencies]`. `folders`: those to read, to which
    it adds those that manifests name.
    """

    collection: Collection
    root: str
    inherited: Mapping[str, Any]
    folders: dict[str, None]
    wishes: set[CrateWish] = field(default_factory=set)
    features_left: int = MAX_FEATURES
    reads_left: int = MAX_READ_FEATURES

    def read(self, folder: str) -> None:
        path = posixpath.join(folder, FILE)
        manifest = self.collection.load_toml(path)
        features = _find_features(manifest)
        for key, value in _list_dependencies(manifest):
            if self.reads_left < 0:  # before the list that it may inherit is copied
                self.collection.refuse(key, RefusalReason.LIMIT, path)
                continue
            more = features.get(key, frozenset())
            wanted = _inherit(key, value, self.inherited)
            self.reads_left -= len(more) + _count_features(wanted)
            if isinstance(wanted, dict) and "path" in wanted:
                base = self.root if wanted is not value else folder
                self._add_folder(key, resolve_folder(base, wanted["path"]), wanted["path"], path)
            elif wish := _read_wish(self.collection, key, wanted, path):
                self._add_wish(replace(wish, features=tuple(sorted({*wish.features, *more}))), path)

    def _add_wish(self, wish: CrateWish, origin: str) -> None:
        if wish in self.wishes:
            return
        if len(self.wishes) >= MAX_WISHES or self.features_left < len(wish.features):
            self.collection.refuse(f"{wish.name} {wish.requirement}", RefusalReason.LIMIT, origin)
            return
        self.features_left -= len(wish.features)
        self.wishes.add(wish)

    def _add_folder(self, key: str, folder: str | None, written: object, origin: str) -> None:
        if folder is None:
            self.collection.refuse(f"{key} {written}", RefusalReason.PATH, origin)
        elif folder not in self.folders and len(self.folders) >= MAX_LOOKS:
            self.collection.refuse(f"{key} {written}", RefusalReason.LIMIT, origin)
        else:
            self.folders[folder] = None


def find_workspace(collection: Collection, folder: str) -> str:
    """The root of the workspace of a crate, as cargo looks for it: the nearest folder, this one or one above it, whose
    manifest has `[workspace]`. The folder itself if there is none, or if that excludes it.
    """
    for root in (folder, *_list_above(folder)):
        workspace = collection.load_toml(posixpath.join(root, FILE)).get("workspace")
        if isinstance(workspace, dict):
            excluded, listed = (
                [resolve_folder(root, path) for path in _list(workspace.get(key))] for key in ("exclude", "members")
            )
            return folder if _is_excluded(folder, excluded) and folder not in listed else root
    return folder


def _is_excluded(folder: str, excluded: list[str | None]) -> bool:
    """As cargo compares them: with a folder, those below it are excluded."""
    return any(path is not None and f"{folder}/".startswith(f"{path}/") for path in excluded)


def _list_above(folder: str) -> Iterator[str]:
    while folder:
        folder = posixpath.dirname(folder)
        yield folder


def _list_members(collection: Collection, workspace: Mapping[str, Any], root: str) -> list[str]:
    """The folders of `members`; those of a pattern without those of `exclude`, and only if there is no Cargo.lock,
    which covers them.
    """
    folders: list[str] = []
    excluded = [resolve_folder(root, path) for path in _list(workspace.get("exclude"))]
    for member in _list(workspace.get("members")):
        path = resolve_folder(root, member)
        found = None if path is None else _find_folders(collection, path, root) if is_pattern(path) else [path]
        if found is None:
            collection.refuse(f"members = {member}", RefusalReason.PATH, posixpath.join(root, FILE))
        folders += [folder for folder in found or () if folder == path or not _is_excluded(folder, excluded)]
    return [folder for folder in dict.fromkeys(folders) if folder != root]


def _find_folders(collection: Collection, pattern: str, root: str) -> list[str] | None:
    has_lock = collection.load_text(posixpath.join(root, LOCK_FILE), LOCK_BYTES)
    return [] if has_lock else find_folders(collection, pattern, FILE)


def _list_dependencies(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    targets = [table for table in _table(manifest, "target").values() if isinstance(table, dict)]
    for table in (manifest, *targets):
        for name in _TABLES:
            yield from _table(table, name).items()


def _find_features(manifest: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Features of dependencies that features of the package switch on: `NAME/FEATURE` and `NAME?/FEATURE`."""
    found: dict[str, set[str]] = {}
    for values in _table(manifest, "features").values():
        for value in values if isinstance(values, list) else ():
            name, slash, feature = str(value).partition("/")
            if slash and _FEATURE.fullmatch(feature):
                found.setdefault(name.removesuffix("?"), set()).add(feature)
    return {name: frozenset(features) for name, features in found.items()}


def _count_features(value: Any) -> int:
    return len(_list(value.get("features"))) if isinstance(value, dict) else 0


def _inherit(key: str, value: Any, inherited: Mapping[str, Any]) -> Any:
    """A dependency with what `[workspace.dependencies]` says of it; the value itself if it does not inherit."""
    if not isinstance(value, dict) or value.get("workspace") is not True:
        return value
    shared = inherited.get(key)
    table = dict(shared) if isinstance(shared, dict) else {"version": shared}
    return {**table, "features": [*_list(table.get("features")), *_list(value.get("features"))]}


def _read_wish(collection: Collection, key: str, value: Any, origin: str) -> CrateWish | None:
    table = value if isinstance(value, dict) else {"version": value}
    for kind, reason in _ELSEWHERE.items():
        if kind in table:
            collection.refuse(f"{key} {table[kind]}", reason, origin)
            return None
    name, requirement = table.get("package", key), table.get("version", "*")
    features = _list(table.get("features"))
    if fault := _find_fault(name, requirement, features):
        collection.refuse(f"{name} {requirement}", fault, origin)
        return None
    default = table.get("default-features", table.get("default_features", True)) is not False
    return CrateWish(name, requirement, tuple(features), default)


def _find_fault(name: object, requirement: object, features: list[Any]) -> RefusalReason | None:
    """Why these are not plain data that may stand in a manifest."""
    if not isinstance(name, str) or not CRATE_NAME.fullmatch(name):
        return RefusalReason.NAME
    if not isinstance(requirement, str) or not _REQUIREMENT.fullmatch(requirement):
        return RefusalReason.VERSION
    if not all(isinstance(feature, str) and _FEATURE.fullmatch(feature) for feature in features):
        return RefusalReason.SYNTAX
    return None


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
