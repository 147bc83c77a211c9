"""The objects behind tree values: read through one git and a bounded cache, fetched on demand, stored loose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import READ_BYTES, missing_object_error, stream_blob
from sandbox.git.entries import Item
from sandbox.git.failures import OutOfMemory
from sandbox.git.maintenance import store_objects
from sandbox.git.partial import is_partial, make_environment
from sandbox.git.process import MOST_LOOSE, Git
from sandbox.git.trees.loose_objects import LooseObjects
from sandbox.git.trees.nodes import NewDirectory, NewFile, Node, list_new, oid_of
from sandbox.git.trees.object_reader import ObjectInfo, ObjectReader
from sandbox.git.trees.tree_format import EntryBudget, parse_tree
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from sandbox.git.trees import small_packs, spilled_contents
    from sandbox.git.trees.spilled_contents import SpilledContents
else:  # loaded for a value with large or many contents (docs/adr/0080)
    small_packs = LazyModule("sandbox.git.trees.small_packs")
    spilled_contents = LazyModule("sandbox.git.trees.spilled_contents")

CACHED_ENTRIES = 131_072
"""Entries of directories that are cached, about 30 MB. Reached: the cache is emptied."""
TREE_BYTES = 32 * 1024**2
"""The largest directory: about 800,000 names. Reached: `quota_exceeded`."""

_PACKED_BYTES = 16 * 1024**2
"""Contents that one pack may have: they are in memory twice, deflated and not."""
_CHECK_DEADLINE_S = 600.0
_AT_ONCE = 400
_READ_AHEAD_BYTES = 1024**2
"""Directories that are read before the entries of the first one are counted: about 25,000 names."""

_FoundT = TypeVar("_FoundT")
Fetch = Callable[[Sequence[str]], None]
"""Brings these objects into a partial clone, with the credentials of its remote. Raises: network errors."""


class TreeStore:
    """Objects of one repository, for all values that were opened on it. Thread-safe."""

    def __init__(self, git: Git, oid_bytes: int, fetch: Fetch | None = None) -> None:
        """`oid_bytes`: 20 or 32. `fetch`: for a partial clone; None: what is missing stays `network_error`."""
        self.git = git
        self.oid_bytes = oid_bytes
        self.loose = LooseObjects(git.new_objects or git.git_dir.absolute() / "objects")
        self._fetch = fetch
        self._reader = ObjectReader(git)
        self._trees: dict[bytes, Mapping[bytes, Item]] = {}
        self._cached = 0

    @cached_property
    def spilled(self) -> SpilledContents:
        """Where contents are that values do not hold in memory."""
        return spilled_contents.SpilledContents(self.git.git_dir)

    @property
    def cached_entries(self) -> int:
        """Entries in the cache: at most `CACHED_ENTRIES`."""
        return self._cached

    def session(self) -> AbstractContextManager[None]:
        """Keep one git process for all reads inside: for a caller that reads many files one by one."""
        return self._reader.session()

    def storing(self) -> AbstractContextManager[None]:
        """Hold off a repack of the clone until a ref leads to what is stored. Raises: `conflict` while it is packed.

        Also in a clone that was put in the place of the one that was opened: then the caller asks `require_whole`.
        """
        return store_objects(replace(self.git, clone_id=None))

    def require_whole(self, oid: str) -> None:
        """Before a ref leads to what was stored, or its id is returned. Inside `storing`. Raises: `conflict` if another
        clone is in place than the one that was opened, and it lacks something: the base, or what an earlier snapshot
        stored without a ref, which is in memory no more.
        """
        found = self.git.git_dir.stat()
        if self.git.clone_id in {None, (found.st_dev, found.st_ino)}:
            return
        question = ("rev-list", "--objects", "--quiet", "--missing=allow-promisor", oid, "--not", "--all")
        if self.git.attempt(*question, env=make_environment(self.git), deadline_s=_CHECK_DEADLINE_S).code != 0:
            raise _replaced_error(self.git)

    def store_new(self, root: Node) -> None:
        """Store what was written at and below a node: few objects as files of their own, more as packs, since a disk
        syncs each file. Raises: `quota_exceeded` for a full disk.
        """
        oid_of(root, self.oid_bytes)  # so that directories have a size
        for part in self._split_new(root):
            if len(part) <= MOST_LOOSE or not self._store_packed(part):
                for node in part:
                    node.write(self.loose, self.oid_bytes)
            for node in part:
                node.mark_stored()

    def _split_new(self, root: Node) -> Iterator[list[NewFile | NewDirectory]]:
        """New nodes in parts that fit into memory."""
        part, size = list[NewFile | NewDirectory](), 0
        for node in list_new(root):
            if size + node.size > _PACKED_BYTES and part:
                yield part
                part, size = [], 0
            part.append(node)
            size += node.size
        if part:
            yield part

    def _store_packed(self, nodes: Sequence[NewFile | NewDirectory]) -> bool:
        """Whether git had enough memory."""
        pack = small_packs.SmallPack(self.oid_bytes)
        for node in nodes:
            node.write(pack, self.oid_bytes)
        try:
            pack.store(self.git)
        except OutOfMemory:
            return False
        return True

    def tree(self, oid: bytes) -> Mapping[bytes, Item]:
        """Entries of a directory. Raises: `not_found`, `unsafe_repository`, `quota_exceeded`."""
        known = self._trees.get(oid)
        return known if known is not None else self._parse(oid, self._read([oid], b"tree", TREE_BYTES, TREE_BYTES)[0])

    def trees(self, oids: Sequence[bytes], budget: EntryBudget) -> Iterator[Mapping[bytes, Item]]:
        """Entries of several directories, one after the other. Many are asked for at once, but only few are in memory
        before their entries are counted. Raises: as `tree`; `quota_exceeded` past the budget.
        """
        for start in range(0, len(oids), _AT_ONCE):
            yield from self._list_part(oids[start : start + _AT_ONCE], budget)

    def _list_part(self, oids: Sequence[bytes], budget: EntryBudget) -> Iterator[Mapping[bytes, Item]]:
        found = {oid: known for oid in oids if (known := self._trees.get(oid)) is not None}
        missing = [oid for oid in dict.fromkeys(oids) if oid not in found]
        contents = self._read_trees(missing)
        for oid in oids:
            if oid in found:
                budget.spend(len(found[oid]))
            else:
                found[oid] = self._parse(oid, next(contents), budget)
            yield found[oid]

    def _read_trees(self, oids: Sequence[bytes]) -> Iterator[bytes]:
        at = 0
        while at < len(oids):
            part = self._read(oids[at:], b"tree", TREE_BYTES, _READ_AHEAD_BYTES)
            yield from part
            at += len(part)

    def _parse(self, oid: bytes, content: bytes, budget: EntryBudget | None = None) -> Mapping[bytes, Item]:
        entries = parse_tree(content, self.oid_bytes, budget)
        self._store(oid, entries)
        return entries

    def blob(self, oid: bytes, most: int = READ_BYTES) -> bytes:
        """Content of a file. Raises: `not_found`, `quota_exceeded` past `most` bytes, network errors."""
        return self._read([oid], b"blob", most, most)[0]

    def stream(self, oid: bytes, most: int) -> Iterator[bytes]:
        """A file in chunks, from a git of its own. Raises: as `blob`, at once or at the first chunk."""
        if is_partial(self.git):
            self.prefetch([oid])
        return stream_blob(self.git, oid.hex(), limit=most)

    def sizes(self, oids: Sequence[bytes]) -> list[int]:
        """Sizes of files in bytes. Raises: `not_found`, network errors."""
        digits = [oid.hex() for oid in oids]
        known = {oid: size for oid in digits if (size := self.git.cache.sizes.get(oid)) is not None}
        asked = [oid for oid in dict.fromkeys(digits) if oid not in known]
        new = {oid: info.size for oid, info in zip(asked, self._inform(asked), strict=True)}
        self.git.cache.sizes.store(new)
        known |= new
        return [known[oid] for oid in digits]

    def has_tree(self, oid: str) -> bool:
        """Whether this id is a stored tree."""
        (info,) = self._reader.info([oid])
        return info is not None and info.kind == b"tree"

    def prefetch(self, oids: Iterable[bytes]) -> int:
        """Fetch those of these files that a partial clone lacks, in one request. Returns their number.

        Raises: network errors.
        """
        digits = list(dict.fromkeys(oid.hex() for oid in oids))
        missing = [oid for oid, info in zip(digits, self._reader.info(digits), strict=True) if info is None]
        if missing:
            self._fetch_missing(missing)
        return len(missing)

    def _read(self, oids: Sequence[bytes], kind: bytes, most: int, together: int) -> Sequence[bytes]:
        """Contents of the first of these objects: see `ObjectReader.first_contents`."""
        digits = [oid.hex() for oid in oids]
        found = self._reader.first_contents(digits, kind, most, together)
        if None in found:
            self._fetch_missing([oid for oid, content in zip(digits, found, strict=False) if content is None])
            found = self._reader.first_contents(digits, kind, most, together)
        return [_require(content, oid) for content, oid in zip(found, digits, strict=False)]

    def _inform(self, oids: Sequence[str]) -> list[ObjectInfo]:
        found = self._reader.info(oids)
        if None in found:
            self._fetch_missing([oid for oid, info in zip(oids, found, strict=True) if info is None])
            found = self._reader.info(oids)
        return [_require(info, oid) for info, oid in zip(found, oids, strict=True)]

    def _fetch_missing(self, oids: Sequence[str]) -> None:
        if not is_partial(self.git):
            raise missing_object_error(f"Object {oids[0][:12]} is not in the cache clone")
        if self._fetch is None:
            raise SandboxError(
                ErrorCode.NETWORK_ERROR,
                f"{len(oids)} objects are not in this partial clone, and there is no access to its remote",
                hint="`sandbox repo materialize` fetches all missing objects.",
            )
        self._fetch(oids)
        self._reader.refresh()

    def _store(self, oid: bytes, entries: Mapping[bytes, Item]) -> None:
        count = len(entries) or 1
        if count > CACHED_ENTRIES:
            return
        if self._cached + count > CACHED_ENTRIES:
            self._trees, self._cached = {}, 0
        self._trees[oid] = entries
        self._cached += count


def _require(found: _FoundT | None, oid: str) -> _FoundT:
    if found is None:
        raise missing_object_error(f"Object {oid[:12]} is not in the cache clone, or of another kind")
    return found


def _replaced_error(git: Git) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The cache clone {git.git_dir.name} was repaired since this tree was opened",
        details="the new clone lacks the base commit, or a part of a snapshot that no ref leads to",
        hint="No ref was moved. Open the tree again, and repeat its changes.",
    )
