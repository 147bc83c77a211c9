"""The members of an npm workspace: their folders, and what each asks for, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.dependencies.collection import MAX_ENTRIES, Collection
from sandbox.dependencies.folder_patterns import find_members
from sandbox.dependencies.node_manifest import FILE, NodeProject, read_project
from sandbox.dependencies.node_tree import require_folder
from sandbox.dependencies.requirement_text import RefusedTextError
from sandbox.models.dependencies import RefusalReason


@dataclass(frozen=True)
class NodeWorkspace:
    """`root`: the project at the top. `members`: the others by folder. `is_whole`: all members are there; else what
    one needs may be another one that was not found, and no registry is asked for it.
    """

    root: NodeProject
    members: Mapping[str, NodeProject] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def projects(self) -> dict[str, NodeProject]:
        """All, by folder, '' for the root."""
        return {"": self.root, **self.members}


def read_workspace(collection: Collection, root: NodeProject) -> NodeWorkspace:
    """The members that a root lists, and those in folders that fit its patterns. Says the collection their names."""
    known = len(collection.refused)
    folders = list(dict.fromkeys([*root.members, *_find_members(collection, root.patterns)]))
    is_whole = root.lists_all and len(collection.refused) == known
    found = {folder: read_project(collection, folder) for folder in folders}
    unread = (RefusalReason.LIMIT, RefusalReason.SYNTAX)
    is_whole = is_whole and not any(refused.reason in unread for refused in collection.refused[known:])
    is_whole = is_whole and len(collection.refused) < MAX_ENTRIES  # later ones are not recorded
    collection.of_tree |= {member.name for member in found.values() if member}
    return NodeWorkspace(root, {folder: member for folder, member in found.items() if member}, is_whole)


def _find_members(collection: Collection, patterns: Iterable[str]) -> Iterator[str]:
    """The folders that fit, if archives of packages can have their names."""
    folders, refused = find_members(collection, patterns, FILE)
    for pattern in refused:
        collection.refuse(f"workspace {pattern}", RefusalReason.PATH, FILE)
    for folder in folders:
        try:
            yield require_folder(folder)
        except RefusedTextError as refused_folder:
            collection.refuse(f"workspace {folder}", refused_folder.reason, FILE)
