"""Turn a worktree that holds one tree into another: only what differs is touched, and all of it or nothing.

Each path is compared with what it should hold right before it is replaced, so nothing that nobody has seen is lost: an
edit from outside, or an ignored file in the place of a tracked one, ends the restore and what was done is taken back.
Links are never followed; one that is in the way is removed itself, and put back if the restore fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind
from sandbox.files.tree import WorktreeFiles
from sandbox.git.diff import diff_trees
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, RawChange
from sandbox.git.objects import blob_id, read_blobs
from sandbox.git.process import Git
from sandbox.git.tree_lookup import files_at
from sandbox.policy.paths import RepoPath, is_dotgit, path_bytes, show_path

FILE_BYTES = 512 * 1024**2
Owner = tuple[int, int] | None


@dataclass(frozen=True)
class _State:
    """One path: its git mode and object id, both empty when nothing is there. `link`: the target of a link."""

    mode: str = ""
    oid: str = ""
    link: bytes | None = None


@dataclass(frozen=True)
class _Step:
    path: RepoPath
    before: _State
    after: _State


def restore_tree(
    git: Git, files: WorktreeFiles, before: str, after: str, owner: Owner, left_out: Iterable[str] = ()
) -> int:
    """Make a worktree that holds the tree (or commit) `before` hold `after`. Returns the number of paths changed.

    `left_out`: names that no tree can hold, so `before` does not say what is there. The caller holds the task's lock
    and nothing runs in the task. Raises: `conflict` when a path is not what `before` says, `unsafe_path` when what is
    there cannot be replaced; then the worktree is as it was.
    """
    links = {path for path in left_out if _is_link(files, RepoPath(path))}
    steps = plan_steps(diff_trees(git, before, after))
    steps += _under_links(git, after, links - {step.path for step in steps})
    done: list[_Step] = []
    try:
        contents = read_blobs(git, [s.after.oid for s in steps if s.after.oid])
        for step in steps:
            done += _clear_links(files, step)
            found = _require_known(files, step, links)
            done.append(_Step(step.path, found, step.after))
            _put(files, step.path, step.after, next(contents) if step.after.oid else None, owner)
    except BaseException:
        _take_back(git, files, done, owner)
        raise
    return len(steps)


def plan_steps(changes: Sequence[RawChange]) -> list[_Step]:
    """Removals first: a directory may take the place of a file, or the reverse. A submodule is nothing on disk, but a
    file may come or go in its place. Pure.

    Raises: `unsafe_path` for a name that may not exist on disk.
    """
    sides = [(c.path, _side(c.old_mode, c.old_oid), _side(c.new_mode, c.new_oid)) for c in changes]
    steps = [_Step(_checked(path), before, after) for path, before, after in sides if before != after]
    return sorted(steps, key=lambda step: bool(step.after.oid))


def _side(mode: str, oid: str | None) -> _State:
    return _State() if oid is None or mode == GITLINK else _State(mode, oid)


def _checked(raw: bytes) -> RepoPath:
    """Not the callers' grammar: a repository may hold names that no caller may write, a backslash for one."""
    if any(name in {b"", b".", b".."} or is_dotgit(name) for name in raw.split(b"/")):
        raise SandboxError(ErrorCode.UNSAFE_PATH, "The tree holds a name that may not be on disk", details=ascii(raw))
    return RepoPath(show_path(raw))


def _clear_links(files: WorktreeFiles, step: _Step) -> Iterator[_Step]:
    """Links where a new path needs directories; the look at the task has left them out or they would be in `before`."""
    if step.before.oid or not step.after.oid:
        return
    parents = step.path.split("/")[:-1]
    for depth in range(1, len(parents) + 1):
        folder = RepoPath("/".join(parents[:depth]))
        kind = files.kind(folder)
        if kind is EntryKind.SYMLINK:
            found = _current(files, folder, step)
            files.remove(folder, link=True)
            yield _Step(folder, found, _State())
        elif kind is None:
            return


def _is_link(files: WorktreeFiles, path: RepoPath) -> bool:
    try:
        return files.kind(path) is EntryKind.SYMLINK
    except SandboxError:  # deeper than any path may be: nothing of a tree goes there
        return False


def _under_links(git: Git, after: str, links: Iterable[str]) -> list[_Step]:
    """Files whose place a link has taken that no tree can hold: the trees alone do not tell that they are gone."""
    leaves = files_at(git, after, map(path_bytes, links))
    return [_Step(RepoPath(show_path(path)), _State(), _State(e.mode, e.oid)) for path, e in leaves.items()]


def _require_known(files: WorktreeFiles, step: _Step, links: Set[str]) -> _State:
    found = _current(files, step.path, step)
    same = (found.mode, found.oid) == (step.before.mode, step.before.oid)
    already = (found.mode, found.oid) == (step.after.mode, step.after.oid)
    left_out = found.link is not None and (not step.before.oid or step.path in links)
    if not same and not already and not left_out:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{step.path} is not what the task's state says",
            details="It changed meanwhile, or an ignored file is in its place.",
            hint="Move it away and repeat; the task is as it was.",
        )
    return found


def _current(files: WorktreeFiles, path: RepoPath, step: _Step) -> _State:
    kind = files.kind(path)
    length = len(step.before.oid or step.after.oid)
    if kind is None:
        return _State()
    if kind is EntryKind.SYMLINK:
        target = files.link_target(path_bytes(path))
        return _State(SYMLINK, blob_id(target, length), target)
    if kind is EntryKind.FILE:
        content, executable = files.read_with_mode(path, FILE_BYTES)
        return _State(EXECUTABLE if executable else REGULAR, blob_id(content, length))
    raise SandboxError(
        ErrorCode.UNSAFE_PATH,
        f"{path} cannot be replaced: it is a directory or a special file",
        hint="`sandbox task fork` makes a new worktree from the same snapshot.",
    )


def _put(files: WorktreeFiles, path: RepoPath, state: _State, content: bytes | None, owner: Owner) -> None:
    if content is None:
        if files.kind(path) is not None:
            files.remove(path, link=True)
    elif state.mode == SYMLINK:
        files.write_link(path, content, owner=owner)
    else:
        files.write(path, content, executable=state.mode == EXECUTABLE, owner=owner, over_link=True)


def _take_back(git: Git, files: WorktreeFiles, done: Sequence[_Step], owner: Owner) -> None:
    """What cannot be put back, or not be read because the disk is full, is in a snapshot still; the other paths can."""
    contents = _as_far_as_read(git, [step.before.oid for step in reversed(done) if _is_stored(step)])
    for step in reversed(done):
        content = next(contents, None) if _is_stored(step) else step.before.link
        if content is not None or not step.before.oid:
            with suppress(SandboxError):
                _put(files, step.path, step.before, content, owner)


def _is_stored(step: _Step) -> bool:
    """Whether what was there is to be asked of git."""
    return bool(step.before.oid) and step.before.link is None


def _as_far_as_read(git: Git, oids: Sequence[str]) -> Iterator[bytes]:
    with suppress(SandboxError, OSError):
        yield from read_blobs(git, oids)
