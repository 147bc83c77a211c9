"""Read uv.lock, poetry.lock, pdm.lock, pylock.toml and Pipfile.lock: names, versions and hashes.

Addresses in them are never used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from sandbox.dependencies.collection import LOCK_BYTES, Collection
from sandbox.dependencies.pipfile import is_itself
from sandbox.dependencies.requirement_text import RefusedTextError, parse_requirement, require_strong_hash
from sandbox.models.dependencies import LockedPackage, RefusalReason, RefusedEntry, RequirementRole

PIPFILE_LOCK = "Pipfile.lock"
LOCK_FILES = ("uv.lock", "pylock.toml", "poetry.lock", "pdm.lock", PIPFILE_LOCK)
_NAME_CHARS = 100
_SOURCES = {
    "git": RefusalReason.VERSION_CONTROL,
    "vcs": RefusalReason.VERSION_CONTROL,
    "hg": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "archive": RefusalReason.URL,
    "path": RefusalReason.PATH,
    "file": RefusalReason.PATH,
    "directory": RefusalReason.PATH,
}
_THE_PROJECT = frozenset({"editable", "virtual"})  # uv.lock lists the project, and its workspace, among the packages


def find_lock_file(collection: Collection) -> str | None:
    """The first lock file that is there. It is loaded, also if so many manifests follow that a limit is reached."""
    return next((path for path in LOCK_FILES if collection.load_text(path, LOCK_BYTES)), None)


def read_lock_file(collection: Collection, path: str) -> None:
    """Add the packages of a lock file."""
    for package in _list_packages(collection, path):
        found = package if isinstance(package, dict) else {}
        if canonicalize_name(str(found.get("name"))) not in collection.of_tree:  # poetry.lock lists these too
            _add_package(collection, found, path)


def _list_packages(collection: Collection, path: str) -> Iterable[Any]:
    if path == PIPFILE_LOCK:
        return _list_pipfile_packages(collection)
    packages = collection.load_toml(path, LOCK_BYTES).get("packages" if path == "pylock.toml" else "package")
    return packages if isinstance(packages, list) else ()


def _list_pipfile_packages(collection: Collection) -> Iterator[dict[str, Any]]:
    """Entries in the form of the other files: here a version is a specifier, and hashes are texts."""
    try:
        document = json.loads(collection.load_text(PIPFILE_LOCK, LOCK_BYTES))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return collection.refuse(PIPFILE_LOCK, RefusalReason.SYNTAX, PIPFILE_LOCK)
    for category, entries in document.items():
        for name, entry in entries.items() if category != "_meta" and isinstance(entries, dict) else ():
            found = entry if isinstance(entry, dict) else {}
            if is_itself(found):
                continue
            hashes, version = found.get("hashes"), found.get("version")
            yield {
                **found,
                "name": name,
                "version": version.removeprefix("==") if isinstance(version, str) else version,
                "files": [{"hash": value} for value in hashes] if isinstance(hashes, list) else [],
            }
    return None


def _add_package(collection: Collection, package: dict[str, Any], path: str) -> None:
    name, version = package.get("name"), package.get("version")
    source = package.get("source", {})
    kinds = _list_kinds(package, source if isinstance(source, dict) else {})
    if kinds & _THE_PROJECT:
        is_own = isinstance(name, str) and canonicalize_name(name) == collection.project
        return _add_computed(collection, package, path) if is_own and collection.computed else None
    shown = str(name)
    if reason := next((_SOURCES[kind] for kind in _SOURCES if kind in kinds), None):
        return collection.refuse(shown, reason, path)
    if not isinstance(name, str) or not isinstance(version, str):
        return collection.refuse(shown, RefusalReason.SYNTAX, path)
    try:
        plain = _require_name(name), str(Version(version))
        hashes = tuple(sorted({require_strong_hash(value) for value in _list_hashes(package)}))
    except RefusedTextError as refused:
        return collection.refuse(shown, refused.reason, path)
    except ValueError:  # an invalid version, also one with a number of more digits than Python converts
        return collection.refuse(f"{shown} {version}", RefusalReason.VERSION, path)
    marker = _read_marker(package, plain[0], path)
    return collection.add_locked(
        LockedPackage(name=plain[0], version=plain[1], marker=marker, hashes=hashes, origin=path)
    )


def _add_computed(collection: Collection, package: dict[str, Any], path: str) -> None:
    """What the project's build computes, as uv asked for it when it wrote the lock file."""
    if any(found.role is RequirementRole.RUNTIME for found in collection.requirements):
        return
    listed = package.get("dependencies")
    for entry in listed if isinstance(listed, list) else ():
        found = entry if isinstance(entry, dict) else {}
        if not isinstance(found.get("name"), str):
            collection.refuse("an entry of dependencies without a name", RefusalReason.SYNTAX, path)
            continue
        extras, marker = found.get("extra"), found.get("marker")
        selected = f"[{','.join(map(str, extras))}]" if isinstance(extras, list) else ""
        text = f"{found['name']}{selected}" + (f" ; {marker}" if marker else "")
        collection.add_text(text, RequirementRole.RUNTIME, f"{path}: {collection.project}")


def _read_marker(package: dict[str, Any], name: str, path: str) -> str:
    """Where this version is meant, in all formats; '' if it is not said in plain words."""
    said = package.get("resolution-markers") or package.get("marker") or package.get("markers")
    alternatives = said if isinstance(said, list) else [said]
    if not alternatives or not all(isinstance(one, str) and one for one in alternatives):
        return ""
    text = f"{name} ; {' or '.join(f'({one})' for one in alternatives)}"
    found = parse_requirement(text, RequirementRole.RUNTIME, path)
    return "" if isinstance(found, RefusedEntry) else found.marker


def _list_kinds(package: dict[str, Any], source: dict[str, Any]) -> set[str]:
    """Words that say where a package is from: poetry.lock has a `type`, others have keys of these names."""
    tables = set(source) if "type" not in source else {str(source["type"])}
    return tables | ({"vcs", "directory", "archive", "git", "hg", "url", "path", "file"} & set(package))


def _require_name(name: str) -> str:
    plain = canonicalize_name(name)
    if len(plain) > _NAME_CHARS or not plain.isascii() or not plain.replace("-", "").isalnum() or plain[0] == "-":
        raise RefusedTextError(RefusalReason.NAME)
    return plain


def _list_hashes(package: dict[str, Any]) -> list[str]:
    """The hashes of all archives, as `ALGORITHM:HEX`, in all formats."""
    archives: list[Any] = [package.get("sdist")]
    for key in ("wheels", "files"):
        listed = package.get(key)
        archives += listed if isinstance(listed, list) else []
    found: list[str] = []
    for archive in archives:
        if isinstance(archive, dict) and isinstance(archive.get("hash"), str):
            found.append(archive["hash"])
        elif isinstance(archive, dict) and isinstance(archive.get("hashes"), dict):
            found += [f"{algorithm}:{value}" for algorithm, value in archive["hashes"].items()]
    return found
