"""Read the manifests of a committed tree from git: data of the cache clone, never files of a worktree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.dependencies.collection import LOCK_BYTES, MAX_LISTED_FILES, ReadFile
from sandbox.dependencies.ecosystems import find_steps
from sandbox.dependencies.layer_plan import LayerPlan, ProjectDescription
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.objects import find_tree, list_folders_with, list_named_entries
from sandbox.git.process import Git
from sandbox.models.layers import LayerRule
from sandbox.policy.paths import path_bytes


def plan_layer(git: Git, tree: str, rule: LayerRule, described: str = "") -> LayerPlan | None:
    """What the checks of a tree, or of the rule's folder in it, need; None if that is no package. Files outside the
    folder are not read. `described`: what the project's build said of it. Raises: `not_found` for a damaged clone.
    """
    steps = find_steps(rule.ecosystem)
    top = find_tree(git, tree, path_bytes(rule.folder)) if rule.folder else tree
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
    """Reads files of a tree: the usual ones together, those that they include, and listings one by one."""
    usual = _read_files(git, tree, manifests)

    def read(path: str) -> bytes | None:
        if path.startswith("/**/"):
            folders = list_folders_with(git, tree, path[4:].encode(), MAX_LISTED_FILES)
            return None if folders is None else b"\n".join(folder for folder in folders if b"\n" not in folder)
        return (usual if path in manifests else _read_files(git, tree, [path])).get(path)

    return read


def _read_files(git: Git, tree: str, paths: Sequence[str]) -> Mapping[str, bytes]:
    """The regular files at these paths; others are left out."""
    entries = [
        entry
        for entry in list_named_entries(git, tree, [path.encode() for path in paths])
        if entry.mode in {REGULAR, EXECUTABLE}
    ]
    small = [entry for entry in entries if (entry.size or 0) <= LOCK_BYTES]
    too_large = {entry.path.decode(): bytes(LOCK_BYTES + 1) for entry in entries if entry not in small}
    contents = read_blobs(git, [entry.oid for entry in small])  # the reader of one that is too large refuses its size
    return too_large | {entry.path.decode(): content for entry, content in zip(small, contents, strict=True)}
