"""Read the manifests of a committed tree from git: data of the cache clone, never files of a worktree."""

from __future__ import annotations

from sandbox.dependencies.collection import LOCK_BYTES, ReadFile
from sandbox.dependencies.python_manifest import MANIFESTS, read_python_manifest, select_requirements
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.objects import find_blob, find_tree, list_named_entries
from sandbox.git.process import Git
from sandbox.models.dependencies import Manifest
from sandbox.policy.paths import path_bytes


def read_manifest(git: Git, tree: str, folder: str = "") -> Manifest:
    """What the checks of a tree, or of one folder of it, need. Files outside the folder are not read.

    Raises: `not_found` for a damaged clone.
    """
    top = find_tree(git, tree, path_bytes(folder)) if folder else tree
    return select_requirements(read_python_manifest(_reader(git, top) if top else lambda _: None))


def _reader(git: Git, tree: str) -> ReadFile:
    """Reads files of a tree: the usual ones together, those that they include one by one."""
    usual = {
        entry.path.decode(): entry
        for entry in list_named_entries(git, tree, [path.encode() for path in MANIFESTS])
        if entry.mode in {REGULAR, EXECUTABLE}
    }
    small = {path: entry.oid for path, entry in usual.items() if (entry.size or 0) <= LOCK_BYTES}
    contents = dict(zip(small, read_blobs(git, list(small.values())), strict=True))

    def read(path: str) -> bytes | None:
        if path in usual:
            return contents.get(path, bytes(LOCK_BYTES + 1))  # too large: its reader refuses it by its size
        oid = None if path in MANIFESTS else find_blob(git, tree, path.encode())
        return None if oid is None else next(read_blobs(git, [oid]))

    return read
