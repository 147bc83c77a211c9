"""Use-cases that edit a task's files. Each is hash-gated, and changes all its files or none."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from sandbox.edits.hash_gate import ABSENT, GATED_BYTES, Edit, EditableFiles, EditOutcome, HashGate, current_state
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish_edit
from sandbox.edits.replace import remove_file, rename_file, replace_file, replace_text
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles, sha256_of_chunks
from sandbox.git import objects
from sandbox.git.blobs import stream_blob
from sandbox.lazy_module import LazyModule
from sandbox.memory import LOCAL_WAIT_S, PROCESS_BUDGET
from sandbox.models import ChangeKind, PatchedFile, PatchResult, Task
from sandbox.policy.paths import RepoPath, is_dotgit, parent_folders, parse_repo_path, path_bytes, refused_path_error
from sandbox.policy.writes import parse_writable_path
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.text import format_utc
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_contents
from sandbox.workbench.controller.guest_accounts import Owner
from sandbox.workbench.controller.registered_repositories import RegisteredRepositories
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.absent_files import explain_absence
from sandbox.workbench.tasks.lifecycle import lock_task
from sandbox.workbench.tasks.worktrees import (
    ensure_site_mounted,
    is_without_files,
    locate_worktree,
    require_writable_disk,
)
from sandbox.workspaces.changes import is_inside

if TYPE_CHECKING:
    from sandbox.workbench.repositories import known_rules
    from sandbox.workbench.tasks import tree_tasks
    from sandbox.workspaces.layout import BaseTree
else:  # loaded at first use (docs/adr/0080)
    known_rules = LazyModule("sandbox.workbench.repositories.known_rules")
    tree_tasks = LazyModule("sandbox.workbench.tasks.tree_tasks")


def patch_files(services: Services, task_id: str, text: bytes, expected: Mapping[str, str | None]) -> PatchResult:
    """Apply a hash-gated patch to all its files or to none. Raises: see `edits.patch`."""
    return _edit(services, task_id, lambda gate: apply_patch(gate, text, expected))


def edit_file(
    services: Services, task_id: str, path: str, old: str | bytes, new: str | bytes, expected: str
) -> PatchResult:
    """Replace a text that occurs exactly once in a file."""
    before, after = _encode(old), _encode(new)
    return _edit(services, task_id, lambda gate: replace_text(gate, path, before, after, expected))


def write_file(
    services: Services, task_id: str, path: str, content: str | bytes, expected: str | None, executable: bool | None
) -> PatchResult:
    """Replace or create a whole file."""
    raw = _encode(content)
    return _edit(services, task_id, lambda gate: replace_file(gate, path, raw, expected, executable=executable))


def delete_file(services: Services, task_id: str, path: str, expected: str) -> PatchResult:
    """Delete a file."""
    return _edit(services, task_id, lambda gate: remove_file(gate, path, expected))


SelectPaths = Callable[[WorktreeFiles], Sequence[str]]
"""Chooses files of a task, under its lock."""


def delete_files(services: Services, task_id: str, select: SelectPaths) -> PatchResult:
    """Delete files whatever they hold, all or none. Raises: as `delete_file`, except `stale_hash`."""

    def decide(gate: HashGate) -> EditOutcome:
        edits, left = list[Edit](), GATED_BYTES
        for path in [gate.writable(path) for path in _select(gate)]:
            before = current_state(gate.files, path, left)
            left -= len(before.content or b"")
            edits.append(Edit(path, before, ABSENT))
        return EditOutcome(tuple(edits))

    def _select(gate: HashGate) -> Sequence[str]:
        return select(gate.files) if isinstance(gate.files, WorktreeFiles) else ()

    return _edit(services, task_id, decide)


def move_file(services: Services, task_id: str, path: str, new_path: str, expected: str) -> PatchResult:
    """Give a file another path."""
    return _edit(services, task_id, lambda gate: rename_file(gate, path, new_path, expected))


def base_hash(home: Home, repositories: RegisteredRepositories, task_id: str, path: str) -> str | None:
    """Hash of a file in the task's last commit, None when it is not there; read from git objects only."""
    task = find_task(home, task_id, allow_closed=True)
    _, git = repositories.open(task.repo_id)
    oid = objects.find_blob(git, objects.tree_of(git, task.head_commit), path_bytes(parse_repo_path(path)))
    return None if oid is None else sha256_of_chunks(stream_blob(git, oid))


def _edit(services: Services, task_id: str, decide: Callable[[HashGate], EditOutcome]) -> PatchResult:
    """Contents are in memory, so edits share the budget of all threads: six at once, and each takes milliseconds."""
    with (
        lock_task(services, task_id) as task,
        _open_files(services, task) as (files, owner),
        PROCESS_BUDGET.reserve(GATED_BYTES, LOCAL_WAIT_S),
    ):
        allowed = partial(parse_writable_path, policy=services.policies.paths, repo_id=task.repo_id)
        gate = HashGate(
            files,
            allowed,
            partial(_find_last_edit, services.home, task.id),
            lambda path: explain_absence(services.home, services.repositories, task, path),
        )
        outcome = decide(gate)
        base = _load_base(services, task)
        below = _require_no_submodule(base, outcome)
        ignored, note = _list_left_out(services, task, files, outcome, (base, below))
        demand = demand_of_contents(len(edit.after.content) for edit in outcome.edits if edit.after.content)
        require_writable_disk(services.home, task)
        with services.disk.admit(Writer.EDIT, demand):
            done = publish_edit(files, outcome, owner)
    return done.model_copy(update={"ignored": ignored, "note": note}) if ignored else done


_IGNORED_NOTE = "git ignores these files here: they are in the task's files, and in no status, diff or commit of it"
_SUBMODULE_NOTE = "these files are in a submodule: a status rejects them, and no diff or commit has them"
_NESTED_NOTE = "a nested `.git` is beside or above these files: a status rejects them, and no diff or commit has them"


def _load_base(services: Services, task: Task) -> BaseTree | None:
    """None if there are no rules: an edit needs none, and a status says why."""
    _, git = services.repositories.open(task.repo_id)
    try:
        return known_rules.load_task_base(services.home, services.policies, task, git)
    except SandboxError:
        return None


def _require_no_submodule(base: BaseTree | None, outcome: EditOutcome) -> frozenset[RepoPath]:
    """Refuse to replace a submodule, and to write into one that is not laid out, as a task without a worktree
    does: no commit would have that, and with the task it would be lost. Returns the paths in those that are laid out.

    Raises: `unsafe_path`; `invalid_input`.
    """
    links = base.facts.gitlink_paths() if base is not None else frozenset()
    below = set[RepoPath]()
    for path in (edit.path for edit in outcome.edits if links):
        if path_bytes(path) in links:
            raise refused_path_error(path, "regular", "it is a submodule")
        if not is_inside(path_bytes(path), links):
            continue
        if base is not None and not base.has_submodules:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"'{path[:200]}' is in a submodule, which is not laid out in this task",
                hint="No commit would have the file. Use a path outside of submodules.",
            )
        below.add(path)
    return frozenset(below)


def _list_left_out(
    services: Services,
    task: Task,
    files: EditableFiles,
    outcome: EditOutcome,
    known: tuple[BaseTree | None, frozenset[RepoPath]],
) -> tuple[tuple[str, ...], str]:
    """The files with new content that a commit leaves out, and why. It has all that the last commit has. `known`: the
    task's base, and the paths in submodules.
    """
    written = [edit.path for edit in outcome.edits if edit.after.content is not None]
    if not written:
        return (), ""
    _, git = services.repositories.open(task.repo_id)
    folders = parent_folders(map(path_bytes, written)) if isinstance(files, WorktreeFiles) else ()
    of_others = {folder for folder in folders if isinstance(files, WorktreeFiles) and _has_dotgit(files, folder)}
    nested = [p for p in written if of_others.intersection(parent_folders([path_bytes(p)]))] if of_others else []
    base, below = known
    ignored = [] if base is None else [path for path in written if base.rules.is_ignored(path, directory=False)]
    tree = objects.tree_of(git, task.head_commit) if nested or ignored else ""
    new = {path for path in {*nested, *ignored} if objects.find_blob(git, tree, path_bytes(path)) is None}
    new |= below.intersection(written)
    reasons = ((ignored, _IGNORED_NOTE), (nested, _NESTED_NOTE), (below, _SUBMODULE_NOTE))
    note = "; ".join(reason for paths, reason in reasons if new.intersection(paths))
    return tuple(path for path in written if path in new), note


def _has_dotgit(files: WorktreeFiles, folder: bytes) -> bool:
    """Whether a directory has a `.git` in any spelling. Only names are looked at."""
    try:
        return any(is_dotgit(posixpath.basename(entry.path)) for entry in files.list_directory(folder))
    except SandboxError:  # a new directory, or one that is too large to be listed for a note
        return False


@contextmanager
def _open_files(services: Services, task: Task) -> Iterator[tuple[EditableFiles, Owner]]:
    """The files of the task and their owner: in its worktree, or of a task that has none yet in its tree."""
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if is_without_files(task, site):
        with tree_tasks.edit_working_tree(services, task) as tree_files:
            yield tree_files, site.owner
    else:
        with WorktreeFiles(ensure_site_mounted(services.home, task, site)) as files:
            yield files, site.owner


def _find_last_edit(home: Home, task_id: str, path: str, sha256: str | None) -> str:
    """Name and time of the latest journaled edit that left a file in this state; empty if none is found."""
    for entry in journal.read_recent_entries(home, task_id):
        if (path, sha256) in {*map(_state_after, entry.files), *map(_old_path_state, entry.files)}:
            return f"{entry.operation} at {format_utc(entry.at)}"
    return ""


def _state_after(file: PatchedFile) -> tuple[str | None, str | None]:
    return file.path, file.sha256_after


def _old_path_state(file: PatchedFile) -> tuple[str | None, str | None]:
    return file.old_path if file.kind is ChangeKind.RENAMED else None, None


def _encode(text: str | bytes) -> bytes:
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Text must be valid Unicode without lone surrogates",
            hint="In Python, pass the content as bytes.",
        ) from error
