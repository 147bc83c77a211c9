"""Read which packages uv, Poetry and requirements files take from elsewhere than a registry, and which of them are in
the tree.

A registry may have other packages of these names: those of the tree are installed by the check, the others refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.folder_patterns import MAX_FOLDERS, find_members, resolve_folder
from sandbox.dependencies.public_indexes import list_public_names, list_public_poetry_names
from sandbox.dependencies.pyproject import (
    FILE,
    classify_list,
    expand_group,
    list_poetry_extras,
    list_poetry_tables,
    read_poetry,
    read_table,
)
from sandbox.dependencies.setup_files import list_published_names, read_setup_cfg, read_setup_py
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

_ELSEWHERE = {  # of several sources of one name the last kind counts
    "index": RefusalReason.OPTION,
    "git": RefusalReason.VERSION_CONTROL,
    "url": RefusalReason.URL,
    "path": RefusalReason.PATH,
    "workspace": RefusalReason.PATH,
}


@dataclass(frozen=True)
class Member:
    """A package in a folder of the tree. `path`: of its manifest."""

    name: str
    path: str
    document: Mapping[str, Any]


def find_packages_of_tree(collection: Collection) -> list[Member]:
    """The members of the workspace, and what sources name by a path in the tree. Says the collection which names are
    theirs, and which ones come from elsewhere.

    A source distribution lacks the other members. Its metadata, without any such source, asks a registry for them.
    """
    root = collection.load_toml(FILE)
    folders = list[str]()
    sources = dict(_list_sources(root))
    _add_folders(collection, folders, _list_members(collection, read_table(root, "tool", "uv", "workspace")))
    _add_folders(collection, folders, _list_paths("", sources))
    members = _read_members(collection, folders, sources)
    published = list_published_names(collection) if sources else set()
    collection.elsewhere = {
        name: reason
        for name, (reason, _) in sources.items()
        if name not in collection.of_tree and not (reason is RefusalReason.PATH and name in published)
    }
    return members


def add_named_folders(collection: Collection, members: Sequence[Member]) -> list[Member]:
    """The members, and the packages that requirements files name by their folders, with what these name. Adds the
    requirements of those names.
    """
    folders = [posixpath.dirname(member.path) for member in members]
    known = len(folders)
    _add_folders(collection, folders, dict.fromkeys(named.folder for named in collection.named_folders))
    found = [*members, *_read_members(collection, folders[known:], {})]
    names = {posixpath.dirname(member.path): member.name for member in found}
    for named in collection.named_folders:
        if named.folder not in names:
            collection.refuse(named.folder, RefusalReason.PATH, named.origin)
        else:
            collection.add_text(f"{names[named.folder]}{_show_extras(named.extras)}", named.role, named.origin)
    return found


def _read_members(
    collection: Collection, folders: list[str], sources: dict[str, tuple[RefusalReason, object]]
) -> list[Member]:
    """The packages in folders, and in those that they name, which are added. Adds their sources, and says the
    collection which names are of the tree.
    """
    members = list[Member]()
    for folder in folders:  # grows while it is read
        path = posixpath.join(folder, FILE)
        document: Mapping[str, Any] = collection.load_toml(path)
        name = read_table(document, "project").get("name") or read_table(document, "tool", "poetry").get("name")
        if not isinstance(name, str):
            document = _read_setup_files(collection, folder, document)
            name = read_table(document, "project").get("name")
        if isinstance(name, str):
            members.append(Member(canonicalize_name(name), path, document))
            own = dict(_list_sources(document))
            sources |= own | sources  # those of the root count
            _add_folders(collection, folders, _list_paths(folder, own))
    collection.of_tree |= {member.name for member in members}
    return members


def _read_setup_files(collection: Collection, folder: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What setup.cfg and setup.py of a folder say, as the table of a project; of `document` if they say no name."""
    apart = Collection(lambda name: collection.load_text(posixpath.join(folder, name)).encode())
    read_setup_cfg(apart)
    read_setup_py(apart)
    for entry in apart.refused:
        collection.refuse(entry.text, entry.reason, posixpath.join(folder, entry.origin))
    if not apart.project:
        return document
    needed = [
        f"{r.name}{_show_extras(r.extras)}{r.specifier}{r.marker and f' ; {r.marker}'}" for r in apart.requirements
    ]
    lists = {name: texts for name, (texts, _) in apart.extras.items()}
    return {**document, "project": {"name": apart.project, "dependencies": needed, "optional-dependencies": lists}}


def read_packages_of_tree(collection: Collection, members: list[Member]) -> None:
    """Add what the members ask for: to the tests, unless the project at the root needs them, or there is none."""
    pending = members
    while pending:
        needed = {r.name for r in collection.requirements if r.role is Role.RUNTIME}
        found = [member for member in pending if not collection.project or member.name in needed]
        role = Role.RUNTIME if found else Role.TEST
        for member in found or pending:
            _read_member(collection, member, role)
        pending = [member for member in pending if found and member not in found]


def _add_folders(collection: Collection, folders: list[str], found: Iterable[str]) -> None:
    new = [folder for folder in found if folder not in folders]
    room = MAX_FOLDERS - len(folders)
    folders += new[:room]
    for folder in new[room:]:
        collection.refuse(f"workspace {folder}", RefusalReason.LIMIT, FILE)


def _list_members(collection: Collection, workspace: Mapping[str, Any]) -> list[str]:
    patterns = [str(text) for text in _list(workspace.get("members"))]
    left_out = [f"!{text}" for text in _list(workspace.get("exclude"))]
    folders, refused = find_members(collection, [*patterns, *left_out], FILE)
    for pattern in refused:
        collection.refuse(f"workspace {pattern}", RefusalReason.PATH, FILE)
    return folders


def _list_sources(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[RefusalReason, object]]]:
    """Names with why no registry is asked for them, and the path if there is one. A list of sources has markers: any
    counts. An index that is the public one is no other place.
    """
    uv = read_table(document, "tool", "uv")
    public = {str(name) for name in list_public_names(uv.get("index"))}
    for name, source in read_table(uv, "sources").items():
        tables = [table for table in (source if isinstance(source, list) else [source]) if isinstance(table, dict)]
        for kind, reason in _ELSEWHERE.items():
            for table in tables:
                place = table.get(kind, False)
                if place is not False and not (kind == "index" and str(place) in public):
                    yield canonicalize_name(name), (reason, table.get("path"))
    poetry = read_table(document, "tool", "poetry")
    usual = list_public_poetry_names(poetry.get("source"))
    for _, entries, _ in list_poetry_tables(poetry):
        for name, entry in entries.items():  # of a list, the entries that a registry has are used
            source = entry.get("source") if isinstance(entry, dict) else None
            if source is not None and str(source).lower() not in usual:  # also of what `project.dependencies` names
                yield canonicalize_name(name), (RefusalReason.OPTION, None)
            for table in entry if isinstance(entry, list) else [entry]:
                if isinstance(table, dict) and "path" in table:
                    yield canonicalize_name(name), (RefusalReason.PATH, table["path"])


def _list_paths(folder: str, sources: Mapping[str, tuple[RefusalReason, object]]) -> list[str]:
    found = (resolve_folder(folder, path) for _, path in sources.values() if path is not None)
    return [path for path in dict.fromkeys(found) if path]


def _read_member(collection: Collection, member: Member, role: Role) -> None:
    project = read_table(member.document, "project")
    if "dependencies" in project:
        collection.add(project["dependencies"], role, f"{member.path}: project.dependencies")
    poetry = read_table(member.document, "tool", "poetry")
    for name, texts in (*read_table(project, "optional-dependencies").items(), *list_poetry_extras(poetry)):
        extra = f"{member.name}[{canonicalize_name(name)}]"
        collection.extras.setdefault(extra, (texts, f"{member.path}: extra {name}"))
        if kind := classify_list(name):
            collection.want_extras([extra], kind)
    read_poetry(collection, poetry, member.path, role)
    groups = read_table(member.document, "dependency-groups")
    groups = {canonicalize_name(name): entries for name, entries in groups.items()}
    for name in groups:
        if kind := classify_list(name):
            collection.add(expand_group(groups, name), kind, f"{member.path}: dependency group {name}")
    if "requires" in (build := read_table(member.document, "build-system")):
        collection.add(build["requires"], Role.BUILD, f"{member.path}: build-system.requires")


def _show_extras(names: Sequence[str]) -> str:
    return f"[{','.join(names)}]" if names else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
