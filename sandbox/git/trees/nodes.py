"""The nodes of a tree value: stored entries, and what was written since. They are shared by values and never changed.

A stored directory is only its id (`Item`); a directory with a change below it (`NewDirectory`) has all its entries. So
a write copies the directories along its path, and two values share everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import Item
from sandbox.git.trees.tree_format import (
    DIRECTORY,
    LINK,
    SUBMODULE,
    EntryBudget,
    format_tree,
    hash_object,
    normalize_mode,
)
from sandbox.policy.paths import LISTED_PATH_HINT, show_path

if TYPE_CHECKING:
    from sandbox.git.trees.spilled_contents import SpilledContent, SpilledContents

MAX_DEPTH = 64
"""Names in a path that is written, and levels of a walk. Reached: `unsafe_path`, `quota_exceeded`."""


class ObjectWriter(Protocol):
    """Where new objects go."""

    def write(self, kind: bytes, content: bytes, oid: bytes) -> None:
        """Take one object. Raises: `quota_exceeded` for a full disk, if it is stored at once."""


class NewFile:
    """A file or link that was written. `content`: in memory or not; None once the repository has it."""

    __slots__ = ("_content", "mode", "oid", "size")

    def __init__(self, mode: int, content: bytes, oid: bytes) -> None:
        self.mode = mode
        self.oid = oid
        self.size = len(content)
        self._content: bytes | SpilledContent | None = content

    @property
    def is_stored(self) -> bool:
        """Whether the repository has it."""
        return self._content is None

    @property
    def content(self) -> bytes | None:
        """What was written; None once the repository has it."""
        found = self._content
        return found if found is None or isinstance(found, bytes) else found.read()

    def spill(self, contents: SpilledContents) -> None:
        """Hold the content in memory no more. Raises: `quota_exceeded` for a full disk."""
        if isinstance(self._content, bytes):
            self._content = contents.add(self._content)

    def write(self, writer: ObjectWriter, oid_bytes: int) -> None:
        """Give its blob to a writer, unless it is stored."""
        content = self.content
        if content is not None:
            writer.write(b"blob", content, self.oid)

    def mark_stored(self) -> None:
        """The repository has it."""
        self._content = None


class NewDirectory:
    """A directory with changes below it. Its id is computed when it is asked for."""

    __slots__ = ("_content", "_oid", "entries", "is_stored")

    mode = DIRECTORY

    def __init__(self, entries: Mapping[bytes, Node]) -> None:
        self.entries = entries
        self.is_stored = False
        self._oid: bytes | None = None
        self._content: bytes | None = None

    def oid(self, oid_bytes: int) -> bytes:
        """The id of its tree object."""
        if self._oid is None:
            entries = self.entries.items()
            items = {n: e if isinstance(e, Item) else Item(e.mode, oid_of(e, oid_bytes)) for n, e in entries}
            self._content = format_tree(items)
            self._oid = hash_object(b"tree", self._content, oid_bytes)
        return self._oid

    def write(self, writer: ObjectWriter, oid_bytes: int) -> None:
        """Give its tree object to a writer, unless it is stored."""
        oid, content = self.oid(oid_bytes), self._content
        if content is not None:
            writer.write(b"tree", content, oid)

    @property
    def size(self) -> int:
        """Bytes of its tree object; 0 while its id was not asked for, and once it is stored."""
        return len(self._content or b"")

    def mark_stored(self) -> None:
        """The repository has it, and what is below it."""
        self._content, self.is_stored = None, True


Node: TypeAlias = Item | NewFile | NewDirectory
Folder: TypeAlias = Item | NewDirectory


class Directories(Protocol):
    """Where the entries of stored directories come from."""

    def tree(self, oid: bytes) -> Mapping[bytes, Item]:
        """The entries of a directory."""


class DirectorySource(Directories, Protocol):
    """A whole tree can be walked in it."""

    @property
    def oid_bytes(self) -> int:
        """20 or 32."""

    def trees(self, oids: Sequence[bytes], budget: EntryBudget) -> Iterator[Mapping[bytes, Item]]:
        """The entries of several directories, one after the other. Raises: `quota_exceeded` past the budget."""


class FoundEntry(NamedTuple):
    """An entry of a walk: its path, and its node."""

    path: bytes
    node: Node


def oid_of(node: Node, oid_bytes: int) -> bytes:
    """The object id of a node."""
    return node.oid(oid_bytes) if isinstance(node, NewDirectory) else node.oid


def is_folder(node: Node) -> bool:
    """Whether this is a directory."""
    return node.mode == DIRECTORY


def entries_of(store: Directories, node: Node) -> Mapping[bytes, Node]:
    """The entries of a directory."""
    return node.entries if isinstance(node, NewDirectory) else store.tree(node.oid)


def find_node(store: Directories, root: Node, names: Sequence[bytes]) -> Node | None:
    """The node at a path; None if there is none. Links are not followed: there is no entry below one."""
    node = root
    for name in names:
        if not is_folder(node):
            return None
        found = entries_of(store, node).get(name)
        if found is None:
            return None
        node = found
    return node


def replace_node(store: Directories, root: Folder, names: Sequence[bytes], new: Node | None) -> NewDirectory:
    """A root in which the node at a path is `new`; with None it is gone, and directories above that are empty then.

    Missing directories are created. Raises: `invalid_input` for a path through a file.
    """
    above: list[tuple[Mapping[bytes, Node], bytes]] = []
    entries: Mapping[bytes, Node] = entries_of(store, root)
    for depth, name in enumerate(names[:-1], 1):
        above.append((entries, name))
        child = entries.get(name)
        if child is not None and not is_folder(child):
            raise _not_a_folder_error(b"/".join(names[:depth]), child)
        entries = {} if child is None else entries_of(store, child)
    entries = _with_entry(entries, names[-1], new)
    for outer, name in reversed(above):
        entries = _with_entry(outer, name, NewDirectory(entries) if entries else None)
    return NewDirectory(entries)


def _with_entry(entries: Mapping[bytes, Node], name: bytes, new: Node | None) -> Mapping[bytes, Node]:
    changed = dict(entries)
    if new is None:
        changed.pop(name, None)
    else:
        changed[name] = new
    return changed


def _not_a_folder_error(path: bytes, node: Node) -> SandboxError:
    kinds = {LINK: "a link", SUBMODULE: "a submodule"}
    what = kinds.get(normalize_mode(node.mode), "a file")
    code = ErrorCode.UNSAFE_PATH if normalize_mode(node.mode) == LINK else ErrorCode.INVALID_INPUT
    return SandboxError(code, f"'{show_path(path)[:200]}' is {what}, not a directory", hint=LISTED_PATH_HINT)


def walk_below(store: DirectorySource, folder: Node, prefix: bytes, budget: EntryBudget) -> list[FoundEntry]:
    """Everything below a directory, sorted by the bytes of the paths; the directories of one level are asked at once.

    Raises: `quota_exceeded` past the budget or `MAX_DEPTH` levels.
    """
    found: list[FoundEntry] = []
    level: list[FoundEntry] = [FoundEntry(prefix, folder)]
    for _ in range(MAX_DEPTH + 1):
        following: list[FoundEntry] = []
        for path, entries in list_level(store, level, budget):
            start = path + b"/" if path else b""
            budget.spend_paths(len(start) * len(entries) + sum(map(len, entries)))
            for name, node in entries.items():
                entry = FoundEntry(start + name, node)
                found.append(entry)
                if node.mode == DIRECTORY:
                    following.append(entry)
        if not following:
            found.sort(key=_path_of)
            return found
        level = following
    raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"This tree has more than {MAX_DEPTH} levels of directories")


def _path_of(entry: FoundEntry) -> bytes:
    return entry.path


def list_level(
    store: DirectorySource, level: Sequence[FoundEntry], budget: EntryBudget
) -> Iterator[tuple[bytes, Mapping[bytes, Node]]]:
    """The entries of several directories, each with the path of the directory. Raises: `quota_exceeded`."""
    stored = store.trees([entry.node.oid for entry in level if isinstance(entry.node, Item)], budget)
    for path, node in level:
        if isinstance(node, NewDirectory):
            budget.spend(len(node.entries))
            yield path, node.entries
        else:
            yield path, next(stored)


def list_new(node: Node) -> Iterator[NewFile | NewDirectory]:
    """What was written at and below a node and is not stored, each before the directory that names it."""
    if isinstance(node, NewDirectory) and not node.is_stored:
        for child in node.entries.values():
            yield from list_new(child)
        yield node
    elif isinstance(node, NewFile) and not node.is_stored:
        yield node
