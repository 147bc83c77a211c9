"""A tree of a repository as an immutable value (docs/adr/0096).

Theory. A value is a base commit and a root node. A write returns another value, and both share every directory that is
not on the written path. A snapshot or a commit stores what is new, as loose objects; until then it is in memory. So a
fork is an assignment, a write costs the directories of its path, and a commit costs one object more than was written.
Names and sizes are bounded: the objects of a repository are data of strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import FILE_BYTES, READ_BYTES
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.entries import Item, RawChange
from sandbox.git.objects import TreeBudget, is_object_id, tree_of
from sandbox.git.process import Git
from sandbox.git.refs import move_ref, require_ref_name
from sandbox.git.trees.nodes import (
    MAX_DEPTH,
    Folder,
    FoundEntry,
    NewFile,
    Node,
    entries_of,
    find_node,
    is_folder,
    oid_of,
    replace_node,
    walk_below,
)
from sandbox.git.trees.tree_changes import compare_nodes, join_exact_renames
from sandbox.git.trees.tree_format import (
    DIRECTORY,
    EXECUTABLE_FILE,
    FILE,
    LINK,
    SUBMODULE,
    EntryBudget,
    hash_object,
    normalize_mode,
)
from sandbox.git.trees.tree_store import Fetch, TreeStore
from sandbox.policy.globs import PatternSet, parse_pattern
from sandbox.policy.paths import (
    LISTED_PATH_HINT,
    fold_name,
    link_error,
    parse_repo_path,
    path_bytes,
    refused_path_error,
    show_path,
)

PRISTINE = "pristine"
"""The snapshot of a value with the content of its base."""

WRITE_BYTES = READ_BYTES
"""The largest file that can be written. Reached: `quota_exceeded`."""

_GLOB_HINT = "Write patterns as in .gitignore: '*.py', 'src/**/*.c'."
_SNAPSHOT_HINT = f"Use `{PRISTINE}`, or what `snapshot` returned."
_READ_AT_ONCE = 1024**2
"""A larger file is streamed, by a git process of its own."""

PENDING_BYTES = 64 * 1024**2
"""Contents that a value holds in memory. Reached: further ones are in a file without a name."""

_NO_LINKS = {".gitmodules", ".gitattributes", ".gitignore", ".mailmap"}  # git's fsck refuses them as links


class TreeEntryInfo(NamedTuple):
    """One entry. `path`: text form. `mode`: one of git's five. `size`: bytes of the content; 0 for directories and
    submodules; None if it was not asked for.
    """

    path: str
    mode: int
    oid: str
    size: int | None


@dataclass(frozen=True)
class CommittedTree:
    """A new commit, and the value that has it as its base."""

    commit: str
    value: TreeValue


def open_tree(git: Git, ref: str, *, default_branch: str = "main", fetch: Fetch | None = None) -> TreeValue:
    """The tree of a branch, tag or commit of a cache clone. `fetch`: brings missing files of a partial clone.

    Raises: `invalid_input`, `not_found`.
    """
    commit = resolve_commit(git, ref, default_branch)
    tree = bytes.fromhex(tree_of(git, commit))
    store = TreeStore(git, len(tree), fetch)
    base = Item(DIRECTORY, tree)
    return TreeValue(store, commit, base, base)


@dataclass(frozen=True, eq=False)
class TreeValue:
    """See the module. Paths are text in the form of `sandbox.policy.paths`; '' is the root. Thread-safe."""

    store: TreeStore = field(repr=False)
    base_commit: str
    base: Item
    root: Folder = field(repr=False)
    pending_bytes: int = 0

    @property
    def tree(self) -> str:
        """The id of the whole tree, stored or not."""
        return oid_of(self.root, self.store.oid_bytes).hex()

    @property
    def base_tree(self) -> str:
        """The id of the tree of the base commit."""
        return self.base.oid.hex()

    @property
    def is_pristine(self) -> bool:
        """Whether the content is that of the base."""
        return self.root is self.base or self.tree == self.base_tree

    # --- reads

    def read(self, path: str, most: int = READ_BYTES) -> bytes:
        """Content of a file. Raises: `not_found`, `invalid_input` for a directory or submodule, `unsafe_path` for a
        link, `quota_exceeded` past `most` bytes, network errors.
        """
        return self._content(self._require_file(path), most)

    def stream(self, path: str, most: int) -> Iterator[bytes]:
        """Content of a file in chunks, of which one is in memory. Raises: as `read`, at once or at the first chunk."""
        node = self._require_file(path)
        if isinstance(node, NewFile):  # not larger than WRITE_BYTES
            return iter([self._content(node, most)])
        return self.store.stream(oid_of(node, self.store.oid_bytes), most)

    def stream_raw(self, path: bytes) -> Iterator[bytes] | None:
        """Content of a file, or target of a link, by the bytes of its path, as `diff` names it; None for what is
        neither. Raises: as `stream`.
        """
        with self.store.session():
            node = find_node(self.store, self.root, path.split(b"/"))
            if node is None or normalize_mode(node.mode) in {DIRECTORY, SUBMODULE}:
                return None
            if isinstance(node, NewFile) and (content := node.content) is not None:
                return iter([content])
            oid = oid_of(node, self.store.oid_bytes)
            is_small = self.store.sizes([oid])[0] <= _READ_AT_ONCE
            return iter([self.store.blob(oid)]) if is_small else self.store.stream(oid, FILE_BYTES)

    def read_link(self, path: str) -> bytes:
        """Target of a link; it is not followed. Raises: as `read`; `invalid_input` for what is no link."""
        node = self._require(path)
        if normalize_mode(node.mode) != LINK:
            raise _wrong_kind_error(path, node)
        return self._content(node, 4096)

    def stat(self, path: str) -> TreeEntryInfo:
        """One entry with its size; a link is not followed. Raises: `not_found`."""
        return self._describe([FoundEntry(path_bytes(path), self._require(path))], sizes=True)[0]

    def exists(self, path: str) -> bool:
        """Whether there is an entry."""
        return self._find(path) is not None

    def list(self, path: str = "", *, sizes: bool = True) -> Sequence[TreeEntryInfo]:
        """Entries of a directory by the bytes of their names. Raises: `not_found`, `invalid_input` for a file;
        `quota_exceeded` for paths of more than `PATHS_BYTES`.
        """
        entries = entries_of(self.store, self._require_folder(path))
        start = path_bytes(path) + b"/" if path else b""
        EntryBudget(len(entries)).spend_paths(len(start) * len(entries))
        found = [FoundEntry(start + name, node) for name, node in sorted(entries.items())]
        return self._describe(found, sizes=sizes)

    def walk(self, path: str = "", *, sizes: bool = True, most: int = TreeBudget.files) -> Iterator[TreeEntryInfo]:
        """Everything below a directory by the bytes of the paths. Raises: `quota_exceeded` past `most`; as `list`."""
        folder = self._require_folder(path)
        with self.store.session():
            found = walk_below(self.store, folder, path_bytes(path), EntryBudget(most))
            described = self._describe(found, sizes=sizes)
        return iter(described)

    def glob(self, pattern: str, *, most: int = TreeBudget.files) -> Sequence[str]:
        """Paths of files that match a pattern of gitignore(5). Raises: `invalid_input`."""
        parsed = parse_pattern(pattern)
        if parsed is None or parsed.is_negated or any(glob.cannot_match for glob in parsed.globs):
            raise SandboxError(ErrorCode.INVALID_INPUT, "This is not a pattern that can match a path", hint=_GLOB_HINT)
        patterns = PatternSet([parsed])
        files = (entry.path for entry in self.walk(sizes=False, most=most) if entry.mode != DIRECTORY)
        return [path for path in files if patterns.covers(path.split("/"))]

    def prefetch(self, paths: Iterable[str]) -> int:
        """Fetch what a partial clone lacks of these files, in one request. Returns the number of files fetched."""
        nodes = (self._find(path) for path in paths)
        return self.store.prefetch([node.oid for node in nodes if isinstance(node, Item) and not is_folder(node)])

    # --- changes: each returns another value

    def write(self, path: str, content: bytes, *, executable: bool | None = None) -> TreeValue:
        """Create or replace a file; missing directories are created. `executable`: None keeps it, a new file is not.

        Raises: `invalid_input` onto a directory or through a file, `unsafe_path` onto or through a link,
        `quota_exceeded` for a large content.
        """
        names = _split(path)
        before = find_node(self.store, self.root, names)
        if before is not None and normalize_mode(before.mode) not in {FILE, EXECUTABLE_FILE}:
            raise _wrong_kind_error(path, before)
        if executable is None:
            executable = before is not None and normalize_mode(before.mode) == EXECUTABLE_FILE
        return self._put(names, EXECUTABLE_FILE if executable else FILE, content)

    def write_link(self, path: str, target: bytes) -> TreeValue:
        """Create or replace a link. Its target is data, and is not followed. Raises: as `write`."""
        names = _split(path)
        if not target or b"\0" in target or len(target) > 4095:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                "The target of a link has 1 to 4095 bytes and no NUL",
                hint="Give the target as bytes, such as b'folder/file'.",
            )
        if fold_name(names[-1]) in _NO_LINKS:
            raise refused_path_error(path, "control", "git refuses this name as a link")
        before = find_node(self.store, self.root, names)
        if before is not None and normalize_mode(before.mode) in {DIRECTORY, SUBMODULE}:
            raise _wrong_kind_error(path, before)
        return self._put(names, LINK, target)

    def remove(self, path: str, *, recursive: bool = False) -> TreeValue:
        """Delete a file, link or submodule, or with `recursive` a directory; and directories above that are empty then.

        Raises: `not_found`, `invalid_input` for the root or a directory without `recursive`.
        """
        if not path:
            raise SandboxError(
                ErrorCode.INVALID_INPUT, "The root cannot be removed", hint="Name a file or directory below it."
            )
        if is_folder(self._require(path)) and not recursive:
            raise SandboxError(
                ErrorCode.INVALID_INPUT, f"'{path[:200]}' is a directory", hint="Ask to remove it recursively."
            )
        return replace(self, root=replace_node(self.store, self.root, _split(path), None))

    def restore(self, snapshot: str) -> TreeValue:
        """The value with the content of a snapshot: `pristine`, or the id of a stored tree. Raises: `not_found`."""
        if snapshot == PRISTINE:
            return replace(self, root=self.base, pending_bytes=0)
        known = is_object_id(snapshot) and len(snapshot) == 2 * self.store.oid_bytes
        if not known or not self.store.has_tree(snapshot):
            raise SandboxError(
                ErrorCode.NOT_FOUND, "There is no such snapshot", details=ascii(snapshot[:80]), hint=_SNAPSHOT_HINT
            )
        return replace(self, root=Item(DIRECTORY, bytes.fromhex(snapshot)), pending_bytes=0)

    def checkout(self, ref: str, *, default_branch: str = "main", discard: bool = False) -> TreeValue:
        """The value of another branch, tag or commit. Raises: `dirty_workspace` for changes, unless `discard`."""
        if not discard and not self.is_pristine:
            raise SandboxError(
                ErrorCode.DIRTY_WORKSPACE,
                "There are changes that are not committed",
                hint="Commit or snapshot them first, or discard them.",
            )
        commit = resolve_commit(self.store.git, ref, default_branch)
        base = Item(DIRECTORY, bytes.fromhex(tree_of(self.store.git, commit)))
        return TreeValue(self.store, commit, base, base)

    # --- what is kept

    def diff(self, *, renames: bool = False) -> Sequence[RawChange]:
        """Files that differ from the base, by path. `renames`: also find files that moved unchanged.

        Raises: `quota_exceeded`.
        """
        with self.store.session():
            changes = compare_nodes(self.store, self.base, self.root)
        return join_exact_renames(changes) if renames else changes

    def snapshot(self) -> str:
        """Store the content; returns `pristine`, or the id of the tree. Without a ref to it, it is kept for a day.

        Raises: `quota_exceeded` for a full disk, `conflict` while the clone is packed; as `TreeStore.require_whole`.
        """
        if self.is_pristine:
            return PRISTINE
        with self.store.storing():
            self.store.store_new(self.root)
            self.store.require_whole(self.tree)
        return self.tree

    def commit(
        self, message: str, identity: Mapping[str, str], *, ref: str | None = None, expected: str | None = None
    ) -> CommittedTree:
        """Store a commit on the base commit. `identity`: GIT_AUTHOR_* and GIT_COMMITTER_*.

        `ref`: a full name below `refs/`, moved from `expected` (the base commit by default; zeros: it is new).
        Raises: `nothing_to_commit`; `conflict` if the ref is elsewhere: then it was not moved; as `snapshot`.
        """
        if self.is_pristine:
            raise SandboxError(
                ErrorCode.NOTHING_TO_COMMIT, "The content is that of the base", hint="Write a file first."
            )
        if ref is not None:
            _require_full_ref(ref)
        content = _format_commit(self.tree, self.base_commit, message, identity)
        oid = hash_object(b"commit", content, self.store.oid_bytes)
        with self.store.storing():
            self.store.store_new(self.root)
            self.store.loose.write(b"commit", content, oid)
            self.store.require_whole(oid.hex())
            if ref is not None:
                move_ref(self.store.git, ref, oid.hex(), expected or self.base_commit)
        base = Item(DIRECTORY, bytes.fromhex(self.tree))
        return CommittedTree(oid.hex(), TreeValue(self.store, oid.hex(), base, base))

    # --- inside

    def _put(self, names: Sequence[bytes], mode: int, content: bytes) -> TreeValue:
        if len(content) > WRITE_BYTES:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"A file may have {WRITE_BYTES} bytes")
        if len(names) > MAX_DEPTH:
            raise refused_path_error(show_path(b"/".join(names)), "depth", f"a path has at most {MAX_DEPTH} names")
        new = NewFile(mode, content, hash_object(b"blob", content, self.store.oid_bytes))
        root = replace_node(self.store, self.root, names, new)
        pending = self.pending_bytes + len(content)
        if pending > PENDING_BYTES:
            new.spill(self.store.spilled)
            pending -= len(content)
        return replace(self, root=root, pending_bytes=pending)

    def _find(self, path: str) -> Node | None:
        with self.store.session():
            return find_node(self.store, self.root, _split(path) if path else [])

    def _require(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise SandboxError(
                ErrorCode.NOT_FOUND, f"There is no '{path[:200]}'", hint=LISTED_PATH_HINT, reason="no_such_file"
            )
        return node

    def _require_folder(self, path: str) -> Node:
        node = self._require(path)
        if not is_folder(node):
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"There is no directory '{path[:200]}'",
                hint=LISTED_PATH_HINT,
                reason="no_such_file",
            )
        return node

    def _require_file(self, path: str) -> Node:
        _split(path)  # the root is no file: an empty path is refused, as in other workspaces
        node = self._require(path)
        kind = normalize_mode(node.mode)
        if kind == LINK:
            raise link_error(path, self._content(node, 4096))
        if kind not in {FILE, EXECUTABLE_FILE}:
            raise _wrong_kind_error(path, node)
        return node

    def _content(self, node: Node, most: int) -> bytes:
        if isinstance(node, NewFile):
            content = node.content
            if content is not None:
                if len(content) > most:
                    raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"This file has {len(content)} bytes, over {most}")
                return content
        return self.store.blob(oid_of(node, self.store.oid_bytes), most)

    def _describe(self, found: Iterable[FoundEntry], *, sizes: bool) -> Sequence[TreeEntryInfo]:
        listed = tuple(found)
        stored = [
            n.oid for _, n in listed if isinstance(n, Item) and normalize_mode(n.mode) not in {DIRECTORY, SUBMODULE}
        ]
        known = dict(zip(stored, self.store.sizes(stored), strict=True)) if sizes else {}
        return [
            TreeEntryInfo(
                show_path(path),
                normalize_mode(node.mode),
                oid_of(node, self.store.oid_bytes).hex(),
                _size(node, known, sizes),
            )
            for path, node in listed
        ]


def _size(node: Node, known: Mapping[bytes, int], sizes: bool) -> int | None:
    if isinstance(node, NewFile):
        return node.size
    if normalize_mode(node.mode) in {DIRECTORY, SUBMODULE}:
        return 0
    return known[node.oid] if sizes and isinstance(node, Item) else None


def _split(path: str) -> list[bytes]:
    return path_bytes(parse_repo_path(path)).split(b"/")


def _wrong_kind_error(path: str, node: Node) -> SandboxError:
    kind = normalize_mode(node.mode)
    if kind == LINK:
        return refused_path_error(path, "link", "it is a link, which is not followed")
    what = {DIRECTORY: "a directory", SUBMODULE: "a submodule"}.get(kind, "a file")
    return SandboxError(ErrorCode.INVALID_INPUT, f"'{path[:200]}' is {what}", hint="Use the path of a file, as listed.")


def _require_full_ref(name: str) -> None:
    kind, _, rest = name.partition("/")
    if kind != "refs" or "/" not in rest:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A ref is named in full, such as refs/heads/NAME")
    require_ref_name(rest)


def _format_commit(tree: str, parent: str, message: str, identity: Mapping[str, str]) -> bytes:
    """The content of a commit object. Raises: `invalid_input` for what git's fsck refuses."""
    lines = [f"tree {tree}", f"parent {parent}"]
    for role in ("AUTHOR", "COMMITTER"):
        name, mail, date = (identity[f"GIT_{role}_{part}"] for part in ("NAME", "EMAIL", "DATE"))
        if any(sign in f"{name}{mail}{date}" for sign in "<>\n\0"):
            raise SandboxError(ErrorCode.INVALID_INPUT, "A name or address has characters that git refuses")
        lines.append(f"{role.lower()} {name} <{mail}> {date}")
    if "\0" in message:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A commit message has no NUL")
    return "\n".join([*lines, "", message]).encode()
