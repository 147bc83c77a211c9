"""The stat cache of a plain worktree: the leaves of a tree, with stamps of the files that were equal to them.

Theory. A status must prove that no file differs from the head. Reading all files takes seconds, so a file that still
has the stamp of its last read counts as unchanged (files/stamps.py explains when a stamp is evidence, THREATS H26). The
index lists the leaves of one tree by directory. When the head moves, the index is updated by the difference of the two
trees, so the head is not listed again. A leaf gets a stamp only after its bytes were compared.

The file is in the home, which guests cannot reach. It is only a cache: it is ignored if it is damaged, of another
program version, from before the last boot, or on a file system with unreliable times. It stores one byte string each
for names, leaves and stamps of a directory; an unchanged directory is compared as a whole (docs/adr/0015).
"""

from __future__ import annotations

import logging
import os
import posixpath
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.files.names import WalkLimits
from sandbox.files.stamps import NO_STAMP, KnownDirectory, TrustedBefore, coarse_now_ns, join_names, keeps_times
from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, TreeEntry
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.store.guest_times import guest_since_ns
from sandbox.store.home import write_atomically

_log = logging.getLogger(__name__)
_MAGIC = b"sandbox-stat-1\n"
_HEAD = struct.Struct("<36sIII")  # boot, checksum of the rest, length of an object id, number of directories
_FOLDER = struct.Struct("<III")  # bytes of the path, bytes of the names, number of names
_MODES = (REGULAR, EXECUTABLE, SYMLINK, GITLINK)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SHARE = 50  # the file is rewritten when a fiftieth of it is new
_READ_BYTES = 100_000  # bytes read in the time of one name


@dataclass(frozen=True)
class StatCacheFiles:
    """The files of a worktree's stat cache: the index, and the time mark of running guests."""

    index: Path
    guest_mark: Path

    def forget(self) -> None:
        """Remove both."""
        self.index.unlink(missing_ok=True)
        self.guest_mark.unlink(missing_ok=True)

    def trusted_before(self) -> TrustedBefore:
        """The horizon for files read from now on. The clock is read first, so a guest that starts later is newer."""
        now_ns = coarse_now_ns()
        return TrustedBefore.of(now_ns, guest_since_ns(self.guest_mark))


@dataclass(frozen=True)
class FolderLeaves:
    """The leaves of one directory. `oids`: for each name, in order, the number of its mode and its object id."""

    known: KnownDirectory
    oids: bytes


Leaf = tuple[bytes, bytes]
"""The mode's number and object id; the stamp."""


class StatIndex:
    """The leaves of `tree` by directory, some with a stamp. `news`: the amount of changes since it was saved."""

    def __init__(self, tree: str, folders: dict[bytes, FolderLeaves], news: int) -> None:
        self.tree = tree
        self.folders = folders
        self.unsaved_changes = news

    @classmethod
    def of(cls, git: Git, tree: str) -> StatIndex:
        """Build the index of a tree from git's listing, without stamps."""
        folders: dict[bytes, dict[str, Leaf]] = defaultdict(dict)
        entries = list_tree(git, tree, sizes=False)
        for entry in entries:
            folder, name = posixpath.split(entry.path)
            folders[folder][os.fsdecode(name)] = (_leaf(entry.mode, entry.oid), NO_STAMP)
        return cls(tree, {folder: _folder(leaves) for folder, leaves in folders.items()}, len(entries))

    def count(self) -> int:
        """The number of leaves."""
        return sum(len(f.oids) for f in self.folders.values()) // self._width

    def add_to(self, limits: WalkLimits, folders: int) -> WalkLimits:
        """Limits for a walk over all leaves, their `folders`, and as many other names as `limits` allow."""
        leaves = ((path, kept.known.names, len(kept.oids) // self._width) for path, kept in self.folders.items())
        name_bytes = sum((len(path) + 1) * count + len(names) for path, names, count in leaves)
        return WalkLimits(limits.entries + self.count() + folders, limits.depth, limits.name_bytes + name_bytes)

    def entries(self, leave_out: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """The leaves by path, except those of the directories `leave_out`."""
        left_out = set(leave_out)
        return {
            path: TreeEntry(path, _MODES[leaf[0]], leaf[1:].hex(), None)
            for folder in self.folders.keys() - left_out
            for path, leaf in self._leaves(folder)
        }

    def update_to(self, git: Git, tree: str) -> None:
        """Update the index to another tree, at the cost of the difference. Leaves that differ lose their stamp."""
        moved: dict[bytes, Leaf | None] = {}
        for change in diff_trees(git, self.tree, tree):
            there = change.new_oid is not None
            moved[change.path] = (_leaf(change.new_mode, str(change.new_oid)), NO_STAMP) if there else None
        self._put(moved)
        self.tree = tree

    def store_stamps(self, stamps: Mapping[bytes, bytes], horizon: TrustedBefore) -> None:
        """Store the stamps of files that were compared with their leaves. Stamps that prove no equality are skipped."""
        proven = {path: stamp for path, stamp in stamps.items() if horizon.is_evidence(stamp)}
        self._put({path: (b"", stamp) for path, stamp in proven.items()})
        self.unsaved_changes += sum(_size(stamp) // _READ_BYTES for stamp in proven.values())

    def is_worth_saving(self) -> bool:
        """Whether saving it costs less than it saves next time."""
        return self.unsaved_changes > self.count() // _SHARE

    @property
    def _width(self) -> int:
        return 1 + len(self.tree) // 2

    def _leaves(self, folder: bytes) -> Iterator[tuple[bytes, bytes]]:
        found, width = self.folders[folder], self._width
        prefix = folder + b"/" if folder else b""
        for number, name in enumerate(found.known.names.split(b"\0")):
            yield prefix + name, found.oids[number * width : (number + 1) * width]

    def _put(self, changes: Mapping[bytes, Leaf | None]) -> None:
        """Set or remove leaves. An empty leaf sets only the stamp."""
        by_folder: dict[bytes, dict[str, Leaf | None]] = defaultdict(dict)
        for path, leaf in changes.items():
            folder, name = posixpath.split(path)
            by_folder[folder][os.fsdecode(name)] = leaf
        for folder, leaves in by_folder.items():
            merged = _merge_leaves(self._by_name(folder), leaves)
            if merged:
                self.folders[folder] = _folder(merged)
            else:
                self.folders.pop(folder, None)
        self.unsaved_changes += len(changes)

    def _by_name(self, folder: bytes) -> dict[str, Leaf]:
        if folder not in self.folders:
            return {}
        stamps = self.folders[folder].known.by_name()
        leaves = (leaf for _, leaf in self._leaves(folder))
        return {name: (leaf, stamp) for (name, stamp), leaf in zip(stamps.items(), leaves, strict=True)}


def _merge_leaves(before: Mapping[str, Leaf], changes: Mapping[str, Leaf | None]) -> dict[str, Leaf]:
    after = dict(before)
    for name, leaf in changes.items():
        if leaf is None:
            after.pop(name, None)
        else:
            after[name] = (leaf[0] or before[name][0], leaf[1])
    return after


def _leaf(mode: str, oid: str) -> bytes:
    return bytes([_MODES.index(mode)]) + bytes.fromhex(oid)


def _folder(leaves: Mapping[str, Leaf]) -> FolderLeaves:
    names = sorted(leaves)
    stamps = b"".join(leaves[name][1] for name in names)
    return FolderLeaves(KnownDirectory(join_names(names), stamps), b"".join(leaves[name][0] for name in names))


def _size(stamp: bytes) -> int:
    return int(struct.unpack_from("=q", stamp, 8)[0])


def load_or_build(git: Git, tree: str, root: Path, memory: StatCacheFiles | None) -> StatIndex:
    """The index of a tree for the worktree at `root`: the saved one, updated to it, or a new one without stamps."""
    kept = load(memory.index) if memory and keeps_times(root) else None
    if kept is None or len(kept.tree) != len(tree):
        return StatIndex.of(git, tree)
    if kept.tree != tree:
        try:
            kept.update_to(git, tree)
        except (SandboxError, ValueError):  # its tree is no longer in the clone
            return StatIndex.of(git, tree)
    return kept


def save_if_worth(index: StatIndex, root: Path, memory: StatCacheFiles | None) -> None:
    """Save the index if that is worth it. A failure is only logged."""
    if memory is None or not index.is_worth_saving() or not keeps_times(root):
        return
    try:
        save(index, memory.index)
    except OSError as error:
        _log.info("the index %s could not be saved: %s", memory.index.name, error)


def save(index: StatIndex, path: Path) -> None:
    """Write an index to a file, atomically."""
    body = bytearray(index.tree.encode())
    for folder, leaves in index.folders.items():
        known = leaves.known
        body += _FOLDER.pack(len(folder), len(known.names), len(leaves.oids) * 2 // (len(index.tree) + 2))
        body += folder + known.names + leaves.oids + known.stamps
    head = _HEAD.pack(_boot(), zlib.crc32(body), len(index.tree), len(index.folders))
    write_atomically(path, _MAGIC + head + body)


def load(path: Path) -> StatIndex | None:
    """Load an index. None if the file is missing, damaged, or from before the last boot."""
    try:
        content = path.read_bytes()
        boot, checksum, length, folders = _HEAD.unpack_from(content, len(_MAGIC))
        body = memoryview(content)[len(_MAGIC) + _HEAD.size :]
        if not content.startswith(_MAGIC) or boot != _boot() or checksum != zlib.crc32(body):
            return None
        return StatIndex(bytes(body[:length]).decode("ascii"), _read_folders(body, length, folders), 0)
    except (OSError, struct.error, ValueError):
        return None


def _read_folders(body: memoryview, length: int, folders: int) -> dict[bytes, FolderLeaves]:
    leaves: dict[bytes, FolderLeaves] = {}
    at = length
    for _ in range(folders):
        sizes = _FOLDER.unpack_from(body, at)
        at += _FOLDER.size
        pieces = []
        for size in (sizes[0], sizes[1], sizes[2] * (1 + length // 2), sizes[2] * len(NO_STAMP)):
            pieces.append(bytes(body[at : at + size]))
            at += size
        leaves[pieces[0]] = FolderLeaves(KnownDirectory(pieces[1], pieces[3]), pieces[2])
    return leaves


def _boot() -> bytes:
    """The kernel's id of this boot. Times from before it may be older than the file's bytes."""
    return _BOOT_ID.read_bytes().strip()
