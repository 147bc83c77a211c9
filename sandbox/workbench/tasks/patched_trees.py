"""Apply a patch to a tree in memory: the edits of a task that has no files on disk, or of one of its forks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sandbox.edits.hash_gate import HashGate, current_state
from sandbox.edits.patch import apply_patch
from sandbox.edits.patch_paths import UngatedError
from sandbox.edits.publish import publish_edit
from sandbox.git.process import Git
from sandbox.git.trees.tree_value import TreeValue, open_tree
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Repository, Task
from sandbox.policy.writes import parse_writable_path
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_objects
from sandbox.workspaces.tree_files import TreeFiles


@dataclass(frozen=True)
class PatchOfTree:
    """A commit with the files that a patch is for, and the task with the rules that hold."""

    task: Task
    repository: Repository
    git: Git
    commit: str


def patch_tree(services: Services, wanted: PatchOfTree, text: bytes, expected: Mapping[str, str | None] | None) -> str:
    """The id of the stored tree with a patch applied, completely or not at all. `expected`: hashes of its files, those
    that it does not touch left out; None: as they are in the commit.

    Raises: as `edits.patch.apply_patch`; `unsafe_path` by the path policy.
    """
    value = _open(services, wanted)
    files = TreeFiles(value)
    gate = HashGate(files, partial(parse_writable_path, policy=services.policies.paths, repo_id=wanted.task.repo_id))
    with value.store.session():
        touched = _find_touched(gate, text)
        publish_edit(files, apply_patch(gate, text, _choose_hashes(touched, expected)), None)
    files.value.snapshot()
    return files.value.tree


def _choose_hashes(
    touched: Mapping[str, str | None], expected: Mapping[str, str | None] | None
) -> dict[str, str | None]:
    """The hash of each file that a patch changes, as the caller gave it; a path without a file needs none."""
    if expected is None:
        return dict(touched)
    return {path: expected.get(path) for path, now in touched.items() if path in expected or now is None}


def _open(services: Services, wanted: PatchOfTree) -> TreeValue:
    fetch = partial(fetch_objects, services, wanted.repository, wanted.git)
    return open_tree(wanted.git, wanted.commit, default_branch=wanted.repository.default_branch, fetch=fetch)


def _find_touched(gate: HashGate, text: bytes) -> dict[str, str | None]:
    """The files that a patch changes, with their hashes; None for the target of a rename. Raises: as `apply_patch`."""
    try:
        apply_patch(gate, text, {})
    except UngatedError as error:
        return {path: current_state(gate.files, gate.writable(path)).sha256 for path in error.names}
    return {}
