"""Read Cargo.lock: names, versions and checksums of crates.io's packages. Addresses in it are never used."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from sandbox.dependencies.collection import LOCK_BYTES, Collection
from sandbox.models.dependencies import LockedPackage, RefusalReason

FILE = "Cargo.lock"
CRATES_IO = frozenset({"registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"})
"""How lock files name the one registry that is used; which server answers for it is the operator's choice."""

CRATE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
CRATE_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]{1,64})?(?:\+[0-9A-Za-z.-]{1,64})?")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


def read_cargo_lock(collection: Collection, folder: str = "") -> None:
    """Add the packages of a folder's Cargo.lock, in any of its versions. The repository's own packages have no source
    there.
    """
    document = collection.load_toml(posixpath.join(folder, FILE), LOCK_BYTES)
    packages, sums = document.get("package"), document.get("metadata")
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and "source" not in package:
            continue
        _add_package(collection, package if isinstance(package, dict) else {}, sums if isinstance(sums, dict) else {})


def _add_package(collection: Collection, package: dict[str, Any], sums: dict[str, Any]) -> None:
    name, version, source = (package.get(key) for key in ("name", "version", "source"))
    shown = f"{name} {version}"
    if not isinstance(source, str) or source not in CRATES_IO:
        is_git = str(source).startswith("git+")
        reason = RefusalReason.VERSION_CONTROL if is_git else RefusalReason.URL
        return collection.refuse(f"{name} {source}", reason, FILE)
    if not isinstance(name, str) or not CRATE_NAME.fullmatch(name):
        return collection.refuse(shown, RefusalReason.NAME, FILE)
    if not isinstance(version, str) or not CRATE_VERSION.fullmatch(version):
        return collection.refuse(shown, RefusalReason.VERSION, FILE)
    checksum = package.get("checksum", sums.get(f"checksum {name} {version} ({source})"))  # the latter: version 1
    if not isinstance(checksum, str) or not _CHECKSUM.fullmatch(checksum):
        return collection.refuse(shown, RefusalReason.HASH, FILE)
    return collection.add_locked(LockedPackage(name=name, version=version, hashes=(f"sha256:{checksum}",), origin=FILE))
