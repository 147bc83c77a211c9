"""Write the difference of two trees into a directory that belongs to a person: all of it or none.

The person's own changes are never lost: a path is written only if it is there what the first tree has, or what the
second one has already. It is compared twice: all paths before the first write, so that every difference can be named,
and each path right before it is replaced. git runs on objects only; it does not open the directory. No link of the
directory is followed, and none is removed, unless the trees say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles
from sandbox.git.blobs import read_blobs, stream_blobs
from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK
from sandbox.git.process import Git
from sandbox.policy.paths import RepoPath, list_parents, path_bytes, refused_path_error
from sandbox.workspaces.changes import stays_inside
from sandbox.workspaces.restore import (
    TARGET_BYTES,
    PathState,
    RestoreSource,
    RestoreStep,
    plan_steps,
    read_current,
    revert_steps,
    write_state,
)
from sandbox.workspaces.working_directory import counts_modes

MAX_NAMED = 20
"""Maximum number of paths in the text of an error; its data has all."""


@dataclass(frozen=True)
class PlannedWrite:
    """One path to write or remove. `already`: the directory has the wanted state."""

    step: RestoreStep
    already: bool


def plan_writes(git: Git, files: WorktreeFiles, before: str, after: str) -> list[PlannedWrite]:
    """What changes from the tree `before` to `after`, compared with the directory.

    Raises: `conflict`, with all `paths` in its data, where the directory has neither; `unsafe_path` for a name or a
    link that may not be written.
    """
    steps = plan_steps(diff_trees(git, before, after))
    _require_inner_links(git, steps)
    with_modes = counts_modes(files)
    removed = {step.path for step in steps if not step.after.oid}
    states = [(step, _read_state(files, step, removed)) for step in steps]
    differing = [step.path for step, state in states if _match(step, state, with_modes=with_modes) is None]
    if differing:
        raise _conflict_error(differing)
    return [
        PlannedWrite(step, already=_match(step, state, with_modes=with_modes) == step.after) for step, state in states
    ]


def write_planned(
    git: Git, files: WorktreeFiles, planned: Sequence[PlannedWrite], owner: tuple[int, int] | None
) -> None:
    """Write them, each file at once under its name. Raises: `conflict` for a path that changed since; the paths that
    were written before it are then changed back.
    """
    with_modes = counts_modes(files)
    steps = [write.step for write in planned if not write.already]
    removed = {step.path for step in steps if not step.after.oid}
    blobs = stream_blobs(git, [step.after.oid for step in steps if step.after.oid])
    done: list[RestoreStep] = []
    try:
        for step in steps:
            blob = next(blobs) if step.after.oid else None
            state = _read_state(files, step, removed)
            if _match(step, state, with_modes=with_modes) is None:
                raise _conflict_error([step.path])
            done.append(RestoreStep(step.path, state or step.before, step.after))
            write_state(files, step.path, step.after, blob, owner)
    except BaseException:
        revert_steps(RestoreSource(git), files, done, owner)
        raise


def _require_inner_links(git: Git, steps: Sequence[RestoreStep]) -> None:
    """A guest may have made the link, and the person's next program would follow it."""
    links = [step for step in steps if step.after.mode == SYMLINK]
    for step, target in zip(links, read_blobs(git, [step.after.oid for step in links]), strict=True):
        if len(target) > TARGET_BYTES or not stays_inside(path_bytes(step.path), target):
            raise refused_path_error(step.path, "link", "it is a symlink that leads out of the directory")


def _read_state(files: WorktreeFiles, step: RestoreStep, removed: set[RepoPath]) -> PathState | None:
    """The state of a path in the directory; None for what no tree can have there, such as a directory or a link on the
    way. A file on the way counts as none if it is removed.
    """
    try:
        for parent in list_parents(step.path):
            if files.kind(parent) not in {None, EntryKind.DIRECTORY} and parent not in removed:
                return None
        return read_current(files, step.path, step)
    except SandboxError as error:
        if error.code is ErrorCode.UNSAFE_PATH:
            return None
        raise


def _match(step: RestoreStep, state: PathState | None, *, with_modes: bool) -> PathState | None:
    """The side of the step that the state equals; None if it equals none. Pure."""
    return next((side for side in (step.after, step.before) if _is_same(state, side, with_modes=with_modes)), None)


def _is_same(state: PathState | None, side: PathState, *, with_modes: bool) -> bool:
    if state is None or state.oid != side.oid:
        return False
    return state.mode == side.mode or (not with_modes and {state.mode, side.mode} == {REGULAR, EXECUTABLE})


def _conflict_error(paths: Sequence[str]) -> SandboxError:
    named = ", ".join(paths[:MAX_NAMED]) + (", ..." if len(paths) > MAX_NAMED else "")
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{len(paths)} path(s) of the directory are not what the task started with",
        details=named,
        hint="No file was written. Commit or move your changes, check out the task's base commit there, or fetch the "
        "task's branch with git (docs/states.md).",
        reason="directory_differs",
        data={"paths": list(paths)},
    )
