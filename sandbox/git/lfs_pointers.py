"""Which files of a tree Git LFS keeps elsewhere: their pointers, and what `.gitattributes` of the tree says.

A pointer is a small text in place of a large file; it names the file's SHA-256 and size. As for git-lfs, a file counts
if its attribute `filter` is `lfs` and its blob is a valid pointer. git works the attributes out, from an index that
holds only the blobs that matter; no filter runs, and `.lfsconfig` is never read (THREATS B24).
Format: git-lfs, docs/spec.md.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import read_blobs
from sandbox.git.diff import blob_sizes
from sandbox.git.entries import EXECUTABLE, REGULAR, TreeEntry
from sandbox.git.process import Git
from sandbox.git.temporary_folders import ATTRIBUTES_PREFIX, temporary_folder
from sandbox.git.tree_lookup import find_files
from sandbox.lazy_pattern import lazy_pattern

ATTRIBUTES = b".gitattributes"
_POINTER_BYTES = range(100, 1024)  # the smallest that is valid has 115, and git-lfs reads none of 1024 or more
_ATTRIBUTES_BYTES = 1024**2
_BLOBS = {REGULAR, EXECUTABLE}
_POINTER = lazy_pattern(
    rb"version https://(?:git-lfs\.github\.com|hawser\.github\.com)/spec/v1\n"
    rb"(?P<extensions>(?:ext-[0-9]-[^\n]{1,200}\n)*)"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>0|[1-9][0-9]{0,17})\n?"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """`oid`: SHA-256 of the file, 64 hex digits, never anything else. `size` in bytes. `text`: the pointer's blob."""

    oid: str
    size: int
    text: bytes

    @property
    def sha256(self) -> str:
        """The file's hash as `sandbox.files.tree` writes it."""
        return f"sha256:{self.oid}"


@dataclass(frozen=True, slots=True)
class PointedFile:
    """A leaf of a tree that Git LFS keeps elsewhere."""

    entry: TreeEntry
    pointer: Pointer


def parse_pointer(content: bytes) -> Pointer | None:
    """The pointer that a blob holds; None for any other content, which is a file as it is. Pure.

    Raises: `unsafe_repository` for one with extensions: programs of a person's computer changed the file.
    """
    found = _POINTER.fullmatch(content) if len(content) in _POINTER_BYTES else None
    if found is None:
        return None
    if found["extensions"]:
        raise SandboxError(
            ErrorCode.UNSAFE_REPOSITORY,
            "A pointer of Git LFS names extensions, which are not supported",
            details=ascii(found["extensions"].decode("utf-8", errors="replace"))[:300],
            hint="Leave the pointers in place: `sandbox run --lfs no`, or `sandbox repo set REPO --unset lfs`.",
        )
    return Pointer(found["oid"].decode(), int(found["size"]), content)


def is_pointer(content: bytes) -> bool:
    """Whether a content is a pointer, with extensions or not. Pure."""
    return len(content) in _POINTER_BYTES and _POINTER.fullmatch(content) is not None


def read_pointers(git: Git, blobs: Iterable[str]) -> dict[str, Pointer]:
    """The pointers among these blobs, by object id. Reads only blobs of a pointer's size."""
    sizes = blob_sizes(git, blobs)
    small = sorted(oid for oid, size in sizes.items() if size in _POINTER_BYTES)
    contents = zip(small, read_blobs(git, small), strict=True)
    return {oid: found for oid, content in contents if (found := _parse_or_none(content))}


def _parse_or_none(content: bytes) -> Pointer | None:
    """For comparisons: a file on disk cannot be what a pointer with extensions stands for."""
    try:
        return parse_pointer(content)
    except SandboxError:
        return None


def list_pointed_files(git: Git, entries: Iterable[TreeEntry]) -> tuple[PointedFile, ...]:
    """The files of a tree that Git LFS keeps elsewhere, in the order of `entries`: its leaves, with sizes.

    Raises: `unsafe_repository`, see `parse_pointer`.
    """
    leaves = [entry for entry in entries if entry.mode in _BLOBS]
    attributes = [entry for entry in leaves if posixpath.basename(entry.path) == ATTRIBUTES]
    small = [entry for entry in leaves if entry.size in _POINTER_BYTES] if attributes else []
    contents = zip(small, read_blobs(git, [entry.oid for entry in small]), strict=True)
    begun = {entry.path: (entry, content) for entry, content in contents if _POINTER.fullmatch(content)}
    kept = _select_by_attribute(git, attributes, list(begun))
    found = ((entry, parse_pointer(content)) for path, (entry, content) in begun.items() if path in kept)
    return tuple(PointedFile(entry, pointer) for entry, pointer in found if pointer is not None)


def select_lfs_paths(git: Git, treeish: str, paths: Collection[bytes]) -> frozenset[bytes]:
    """The paths that the `.gitattributes` files of a tree give to Git LFS. Costs what the paths cost."""
    folders = {folder for path in paths for folder in _list_folders(path)}
    found = find_files(git, treeish, (posixpath.join(folder, ATTRIBUTES) for folder in folders))
    return _select_by_attribute(git, [e for e in found.values() if e.mode in _BLOBS], sorted(paths))


def _list_folders(path: bytes) -> Iterable[bytes]:
    """The folders above a path; b'' is the top."""
    while path:
        path = posixpath.dirname(path)
        yield path


def _select_by_attribute(git: Git, attributes: Sequence[TreeEntry], paths: Sequence[bytes]) -> frozenset[bytes]:
    """The paths with the attribute `filter=lfs`."""
    usable = [entry for entry in attributes if (entry.size or 0) <= _ATTRIBUTES_BYTES]
    if not usable or not paths:
        return frozenset()
    with temporary_folder(ATTRIBUTES_PREFIX) as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        rows = b"".join(b"%s %s\t%s\0" % (e.mode.encode(), e.oid.encode(), e.path) for e in usable)
        git.run("update-index", "-z", "--index-info", stdin=rows, env=env)
        asked = b"".join(path + b"\0" for path in paths)
        out = git.run("check-attr", "--cached", "-z", "--stdin", "filter", stdin=asked, env=env)
    fields = out.split(b"\0")[:-1]
    return frozenset(path for path, value in zip(fields[::3], fields[2::3], strict=True) if value == b"lfs")
