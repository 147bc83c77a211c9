"""Read the manifests of a committed tree from git: data of the cache clone, never files of a worktree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.dependencies.collection import ALL_BYTES, LOCK_BYTES, MAX_LISTED_FILES, ReadFile
from sandbox.dependencies.ecosystems import find_steps
from sandbox.dependencies.layer_plan import LayerPlan, ProjectDescription
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import EXECUTABLE, REGULAR, TreeEntry
from sandbox.git.objects import find_tree, list_folders_with, list_named_entries
from sandbox.git.process import Git
from sandbox.models.layers import LayerRule
from sandbox.policy.paths import path_bytes


def plan_layer(git: Git, tree: str, rule: LayerRule, described: str = "") -> LayerPlan | None:
    """What the checks of a tree, or of the rule's folder in it, need; None if that is no package. Files outside the
    folder are read only where it is in a workspace of cargo. `described`: what the project's build said of it. Raises:
    `not_found` for a damaged clone.
    """
    steps = find_steps(rule.ecosystem)
    find_root = steps.find_root if rule.folder else None
    folder = find_root(_reader(git, tree, ()), rule.folder) if find_root else rule.folder
    top = find_tree(git, tree, path_bytes(folder)) if folder else tree
    if not top:
        return None
    read = _reader(git, top, steps.manifests)

    def read_with_description(path: str) -> bytes | None:
        is_described = described and steps.description is not None and path == steps.description.file
        return described.encode() if is_described else read(path)

    return steps.plan(read_with_description, rule.needs)


def find_description(git: Git, tree: str, rule: LayerRule) -> ProjectDescription | None:
    """How to ask the project for what its manifests compute; None if there is no need to. A project in a folder of the
    repository is not asked.
    """
    steps = find_steps(rule.ecosystem)
    description = steps.description
    if rule.folder or description is None:
        return None
    return description if description.is_needed(_reader(git, tree, steps.manifests)) else None


def _reader(git: Git, tree: str, manifests: Sequence[str]) -> ReadFile:
    """Reads files of a tree: the usual ones together, as far as they are held, the others and listings one by one."""
    usual = _list_files(git, tree, manifests)
    contents = _read_together(git, usual)

    def read(path: str) -> bytes | None:
        if path.startswith("/**/"):
            folders = list_folders_with(git, tree, path[4:].encode(), MAX_LISTED_FILES)
            return None if folders is None else b"\n".join(folder for folder in folders if b"\n" not in folder)
        if path in contents:
            return contents[path]
        entry = (usual if path in manifests else _list_files(git, tree, [path])).get(path)
        return None if entry is None else _read_file(git, entry)

    return read


def _list_files(git: Git, tree: str, paths: Sequence[str]) -> Mapping[str, TreeEntry]:
    """The regular files at these paths; others are left out."""
    entries = list_named_entries(git, tree, [path.encode() for path in paths])
    return {entry.path.decode(): entry for entry in entries if entry.mode in {REGULAR, EXECUTABLE}}


def _read_together(git: Git, files: Mapping[str, TreeEntry]) -> Mapping[str, bytes]:
    """The first of these files, as many as a plan may hold. Small in git, they can be large: all may be one object."""
    chosen, total = {}, 0
    for path, entry in files.items():
        size = entry.size or 0
        if size <= LOCK_BYTES and total + size <= ALL_BYTES:
            chosen[path], total = entry.oid, total + size
    return dict(zip(chosen, read_blobs(git, list(chosen.values())), strict=True))


def _read_file(git: Git, entry: TreeEntry) -> bytes:
    """One file. One that is too large is not read: the caller refuses the number of these bytes."""
    if (entry.size or 0) > LOCK_BYTES:
        return bytes(LOCK_BYTES + 1)
    (content,) = read_blobs(git, [entry.oid])
    return content
