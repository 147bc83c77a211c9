"""Change a worktree from one tree to another: only differing paths are written, all of them or none.

Each path is compared with its expected content right before it is replaced, so no unknown content is lost: an external
edit, or an ignored file in the place of a tracked one, stops the restore, and its earlier steps are reverted. Symlinks
are never followed; one that is in the way is removed itself, and put back if the restore fails.

A file of Git LFS counts as the pointer that stands for it, and is written in place of one that is in `large`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles, sha256_of_chunks
from sandbox.git.blobs import BlobReader, stream_blobs
from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, RawChange
from sandbox.git.lfs_pointers import read_pointers
from sandbox.git.objects import blob_id, hash_chunks
from sandbox.git.process import Git
from sandbox.git.tree_lookup import find_files
from sandbox.lazy_dataclass import dataclass
from sandbox.policy.paths import RepoPath, is_dotgit, path_bytes, show_path
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles

_CHANGES = "changes"  # in place of an object id: the file changed while it was read
TARGET_BYTES = 4096  # PATH_MAX
FILE_BYTES = 512 * 1024**2
Owner = tuple[int, int] | None
Content = BlobReader | bytes | Iterator[bytes]
"""Of a path: a blob of git, bytes at hand, or an object of Git LFS."""


@dataclass(frozen=True)
class PathState:
    """One path: its git mode and object id, both empty for no file. `link`: the target of a symlink."""

    mode: str = ""
    oid: str = ""
    link: bytes | None = None


@dataclass(frozen=True)
class RestoreSource:
    """What a restore reads: the objects of git, and the files of Git LFS in the trees before and after."""

    git: Git
    large: LargeFiles = NO_LARGE_FILES


@dataclass(frozen=True)
class RestoreStep:
    path: RepoPath
    before: PathState
    after: PathState


def restore_tree(
    source: RestoreSource, files: WorktreeFiles, before: str, after: str, owner: Owner, left_out: Iterable[str] = ()
) -> int:
    """Change a worktree from the tree (or commit) `before` to `after`. Returns the number of changed paths.

    `left_out`: names that cannot be in a tree, so `before` does not have their content. The caller holds the task's
    lock, and no check runs in the task. Raises: `conflict` if a path differs from `before`, `unsafe_path` if a path
    cannot be replaced; the worktree is then unchanged.
    """
    git = source.git
    links = {path for path in left_out if _is_link(files, RepoPath(path))}
    steps = plan_steps(diff_trees(git, before, after))
    steps += _steps_under_links(git, after, links - {step.path for step in steps})
    done: list[RestoreStep] = []
    try:
        blobs = stream_blobs(git, [s.after.oid for s in steps if s.after.oid])
        for step in steps:
            done += _clear_links(files, step)
            current = _require_expected(git, files, step, links)
            done.append(RestoreStep(step.path, current, step.after))
            _write_after(source, files, step, blobs, owner)
    except BaseException:
        revert_steps(source, files, done, owner)
        raise
    return len(steps)


def _write_after(
    source: RestoreSource, files: WorktreeFiles, step: RestoreStep, blobs: Iterator[BlobReader], owner: Owner
) -> None:
    """Take a step. `blobs`: the contents of all steps that have one, in their order."""
    content = next(blobs) if step.after.oid else None
    large = source.large.open(path_bytes(step.path), step.after.oid)
    write_state(files, step.path, step.after, large or content, owner)


def plan_steps(changes: Sequence[RawChange]) -> list[RestoreStep]:
    """Plan the steps, removals first: a directory may replace a file, or the reverse. Submodules have no files on disk,
    but a file may be added or removed in their place. Pure.

    Raises: `unsafe_path` for a name that may not exist on disk.
    """
    sides = [(c.path, _side(c.old_mode, c.old_oid), _side(c.new_mode, c.new_oid)) for c in changes]
    steps = [RestoreStep(_require_safe_path(path), before, after) for path, before, after in sides if before != after]
    return sorted(steps, key=lambda step: bool(step.after.oid))


def _side(mode: str, oid: str | None) -> PathState:
    return PathState() if oid is None or mode == GITLINK else PathState(mode, oid)


def _require_safe_path(raw: bytes) -> RepoPath:
    """Check a path of a tree. Wider than the grammar for callers: a tree may have names with a backslash, for one."""
    if any(name in {b"", b".", b".."} or is_dotgit(name) for name in raw.split(b"/")):
        raise SandboxError(ErrorCode.UNSAFE_PATH, "The tree has a name that is not allowed on disk", details=ascii(raw))
    return RepoPath(show_path(raw))


def _clear_links(files: WorktreeFiles, step: RestoreStep) -> Iterator[RestoreStep]:
    """Remove symlinks where a new path needs directories. They were left out of `before`, or they would be in it."""
    if step.before.oid or not step.after.oid:
        return
    parents = step.path.split("/")[:-1]
    for depth in range(1, len(parents) + 1):
        folder = RepoPath("/".join(parents[:depth]))
        kind = files.kind(folder)
        if kind is EntryKind.SYMLINK:
            current = read_current(files, folder, step)
            files.remove(folder, link=True)
            yield RestoreStep(folder, current, PathState())
        elif kind is None:
            return


def _is_link(files: WorktreeFiles, path: RepoPath) -> bool:
    try:
        return files.kind(path) is EntryKind.SYMLINK
    except SandboxError:  # deeper than the limit: no path of a tree is there
        return False


def _steps_under_links(git: Git, after: str, links: Iterable[str]) -> list[RestoreStep]:
    """Steps for files that were replaced by a symlink that cannot be in a tree: the trees do not show this change."""
    leaves = find_files(git, after, map(path_bytes, links))
    return [RestoreStep(RepoPath(show_path(path)), PathState(), PathState(e.mode, e.oid)) for path, e in leaves.items()]


def _require_expected(git: Git, files: WorktreeFiles, step: RestoreStep, links: Set[str]) -> PathState:
    current = read_current(files, step.path, step)
    same = (current.mode, current.oid) == (step.before.mode, step.before.oid)
    if not same and _is_large_file(git, files, step, current):
        return step.before
    already = (current.mode, current.oid) == (step.after.mode, step.after.oid)
    left_out = current.link is not None and (not step.before.oid or step.path in links)
    if not same and not already and not left_out:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{step.path} differs from the task's recorded state",
            details="It was changed meanwhile, or an ignored file is in its place.",
            hint="Move it away and try again. The task was not changed.",
        )
    return current


def _is_large_file(git: Git, files: WorktreeFiles, step: RestoreStep, current: PathState) -> bool:
    """Whether the file is the one that its blob before, a pointer of Git LFS, stands for."""
    if current.mode != step.before.mode or current.mode == SYMLINK or not current.mode:
        return False
    pointer = read_pointers(git, [step.before.oid]).get(step.before.oid)
    if pointer is None:
        return False
    with files.open_chunks(step.path, FILE_BYTES) as (_, chunks):
        return sha256_of_chunks(chunks) == pointer.sha256


def read_current(files: WorktreeFiles, path: RepoPath, step: RestoreStep) -> PathState:
    """What a path is now. `step`: the step that is about to change it. Raises: `unsafe_path` for a directory, a special
    file, or a link on the way.
    """
    kind = files.kind(path)
    length = len(step.before.oid or step.after.oid)
    if kind is None:
        return PathState()
    if kind is EntryKind.SYMLINK:
        target = files.read_link(path_bytes(path))
        return PathState(SYMLINK, blob_id(target, length), target)
    if kind is EntryKind.FILE:
        with files.open_chunks(path, FILE_BYTES) as (info, chunks):
            oid = hash_chunks(chunks, info.st_size, length)
        return PathState(EXECUTABLE if info.st_mode & stat.S_IXUSR else REGULAR, oid or _CHANGES)
    raise SandboxError(
        ErrorCode.UNSAFE_PATH,
        f"{path} cannot be replaced: it is a directory or a special file",
        hint="`sandbox task fork` creates a new worktree from the same snapshot.",
    )


def write_state(files: WorktreeFiles, path: RepoPath, state: PathState, content: Content | None, owner: Owner) -> None:
    """`content`: of the state; bytes for the target of a link."""
    if content is None:
        if files.kind(path) is not None:
            files.remove(path, link=True)
    elif state.mode == SYMLINK:
        files.write_link(path, _read_target(content), owner=owner)
    else:
        chunks = content.chunks() if isinstance(content, BlobReader) else content
        files.write(path, chunks, executable=state.mode == EXECUTABLE, owner=owner, replace_link=True)


def _read_target(content: Content) -> bytes:
    """Raises: `unsafe_path` for a target that is longer than any file system allows."""
    if not isinstance(content, BlobReader):
        return content if isinstance(content, bytes) else b"".join(content)
    if content.size > TARGET_BYTES:
        raise SandboxError(ErrorCode.UNSAFE_PATH, f"A link's target has {content.size} bytes")
    return content.read()


def revert_steps(source: RestoreSource, files: WorktreeFiles, done: Sequence[RestoreStep], owner: Owner) -> None:
    """Revert steps. Paths that fail (e.g. a full disk) are skipped: a snapshot still has their content."""
    blobs = _read_until_error(source.git, [step.before.oid for step in reversed(done) if _is_stored(step)])
    for step in reversed(done):
        content = next(blobs, None) if _is_stored(step) else step.before.link
        large = source.large.open(path_bytes(step.path), step.before.oid)
        if content is not None or not step.before.oid:
            with suppress(SandboxError):
                write_state(files, step.path, step.before, large or content, owner)


def undo_restore(
    source: RestoreSource, files: WorktreeFiles, before: str, after: str, owner: Owner
) -> tuple[RepoPath, ...]:
    """Change a worktree back to `before` after a `restore_tree` that was killed. Returns the paths that have the
    content of neither tree: they stay. After an error a later call goes on.
    """
    steps = plan_steps(diff_trees(source.git, after, before))
    removals = [step for step in steps if not step.after.oid]
    kept = _undo_steps(source, files, removals, owner)  # first: what they remove is in the way of others
    return (*kept, *_undo_steps(source, files, steps[len(removals) :], owner))


def _undo_steps(
    source: RestoreSource, files: WorktreeFiles, steps: Sequence[RestoreStep], owner: Owner
) -> tuple[RepoPath, ...]:
    """Returns the paths that have the content of neither tree. `steps`: none is in the way of another."""
    found = [(step, _find_undo(source.git, files, step)) for step in steps]
    undone = [step for step, is_written in found if is_written]
    blobs = stream_blobs(source.git, [step.after.oid for step in undone if step.after.oid])
    for step in undone:
        _require_expected(source.git, files, step, frozenset())
        _write_after(source, files, step, blobs, owner)
    return tuple(step.path for step, is_written in found if is_written is None)


def _find_undo(git: Git, files: WorktreeFiles, step: RestoreStep) -> bool | None:
    """Whether the file is the one that the step replaces; None if it is neither that nor what it becomes."""
    try:
        current = read_current(files, step.path, step)
    except SandboxError as error:  # a directory, a link above it, or something else that was put there since
        is_absent = not step.after.oid and error.code is ErrorCode.UNSAFE_PATH
        return False if is_absent else None
    if _is_state(git, files, step.path, current, step.after):
        return False
    return True if _is_state(git, files, step.path, current, step.before) else None


def _is_state(git: Git, files: WorktreeFiles, path: RepoPath, current: PathState, wanted: PathState) -> bool:
    same = (current.mode, current.oid) == (wanted.mode, wanted.oid)
    return same or (bool(wanted.oid) and _is_large_file(git, files, RestoreStep(path, wanted, wanted), current))


def _is_stored(step: RestoreStep) -> bool:
    """Whether the old content is in git."""
    return bool(step.before.oid) and step.before.link is None


def _read_until_error(git: Git, oids: Sequence[str]) -> Iterator[BlobReader]:
    with suppress(SandboxError, OSError):
        yield from stream_blobs(git, oids)
