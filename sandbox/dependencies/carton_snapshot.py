"""Read cpanfile.snapshot, the lock file of Carton: distributions by their path, and the modules that each provides.

https://metacpan.org/pod/Carton. The format has no hashes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.dependencies.collection import LOCK_BYTES, Collection
from sandbox.dependencies.perl_values import MODULE, split_distribution
from sandbox.models.dependencies import LockedPackage, RefusalReason

FILE = "cpanfile.snapshot"
_ENTRY = re.compile(r"( *)(\S+?):?(?: (\S+))?")
_MAX_MODULES = 50_000
_DISTRIBUTION, _FIELD, _MODULE = 2, 4, 6  # columns


@dataclass(frozen=True)
class LockedModule:
    """A module of a lock file, its version (`undef` if it has none), and the path of the distribution that has it."""

    module: str
    version: str
    path: str


def read_snapshot(collection: Collection) -> list[LockedModule]:
    """The modules of the lock file; its distributions are added to `collection.locked`."""
    modules: list[LockedModule] = []
    path = field = ""
    for line in collection.load_text(FILE, LOCK_BYTES).split("\n"):
        if not (entry := _ENTRY.fullmatch(line.rstrip())):
            continue
        column, name, value = len(entry[1]), entry[2], entry[3] or ""
        if column <= _DISTRIBUTION:
            path = field = ""
        elif column == _FIELD:
            field = name
            if name == "pathname":
                path = _take_path(collection, value)
        elif column == _MODULE and field == "provides" and path and MODULE.fullmatch(name):
            if len(modules) >= _MAX_MODULES:
                collection.cut_lock(FILE, _MAX_MODULES)
                break
            modules.append(LockedModule(name, value, path))
    return [] if collection.is_cut else modules


def _take_path(collection: Collection, path: str) -> str:
    found = split_distribution(path)
    if found is None:
        collection.refuse(path, RefusalReason.PATH, FILE)
        return ""
    author, name, version = found
    collection.add_locked(LockedPackage(name=f"{author}/{name}", version=version, origin=FILE))
    return path
