"""Read a Pipfile: names, versions, extras and markers. Its `[[source]]` tables name indexes, which are not used.

A `path` may be a package of the tree; images/python/declared.py reads these folders, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.dependencies.collection import Collection, NamedFolder
from sandbox.dependencies.folder_patterns import resolve_folder
from sandbox.dependencies.public_indexes import list_public_names
from sandbox.dependencies.pyproject import classify_list
from sandbox.dependencies.requirement_files import add_package_of_tree
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

FILE = "Pipfile"
_ELSEWHERE = {
    **dict.fromkeys(("git", "hg", "svn", "bzr"), RefusalReason.VERSION_CONTROL),
    **dict.fromkeys(("url", "file"), RefusalReason.URL),
    "path": RefusalReason.PATH,
}
_ROLES = {"packages": Role.RUNTIME, "dev-packages": Role.DEVELOPMENT}
_VARIABLES = (
    "os_name", "sys_platform", "platform_machine", "platform_python_implementation", "platform_release",
    "platform_system", "platform_version", "python_version", "python_full_version", "implementation_name",
    "implementation_version",
)  # fmt: skip


def read_pipfile(collection: Collection) -> None:
    """Add `[packages]`, `[dev-packages]`, and categories for tests or development by their names."""
    document = collection.load_toml(FILE)
    public = set(list_public_names(document.get("source")))
    for table, entries in document.items():
        if (role := _ROLES.get(table) or classify_list(table)) is None or not isinstance(entries, dict):
            continue
        for name, entry in entries.items():
            _add(collection, name, entry if isinstance(entry, dict) else {"version": entry}, (role, table, public))


def is_itself(entry: Mapping[str, Any]) -> bool:
    """Whether an entry, also of Pipfile.lock, means the project that it is of: `-e .`."""
    return isinstance(path := entry.get("path"), str) and path in {".", "./"}


def _add(collection: Collection, name: str, entry: Mapping[str, Any], list_of: tuple[Role, str, set[str]]) -> None:
    role, table, public = list_of
    origin = f"{FILE}: {table}"
    version, extras = entry.get("version", "*"), entry.get("extras", [])
    conditions = [entry.get("markers"), *(f"{key} {entry[key]}" for key in _VARIABLES if key in entry)]
    reason = next((reason for kind, reason in _ELSEWHERE.items() if kind in entry), None)
    if reason is None and "index" in entry and str(entry["index"]) not in public:
        reason = RefusalReason.OPTION
    chosen = tuple(map(str, extras if isinstance(extras, list) else ()))
    folder = resolve_folder("", entry.get("path"))
    if is_itself(entry):
        collection.want_extras(chosen, role)
    elif folder and add_package_of_tree(collection, NamedFolder(folder, chosen, role, origin)):
        return
    elif reason:
        collection.refuse(name, reason, origin)
    elif not isinstance(version, str) or not isinstance(extras, list):
        collection.refuse(name, RefusalReason.SYNTAX, origin)
    else:
        selected = f"[{','.join(map(str, extras))}]" if extras else ""
        marker = " and ".join(f"({text})" if " or " in str(text) else str(text) for text in conditions if text)
        specifier = "" if version.strip() == "*" else version
        collection.add_text(f"{name}{selected}{specifier}" + (f" ; {marker}" if marker else ""), role, origin)
