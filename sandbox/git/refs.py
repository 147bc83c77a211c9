"""Refs of one bare repository, by full name: resolve, move and rename them.

No text of a caller becomes a revision expression.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import DISK_FULL, DISK_FULL_HINT, ErrorCode, SandboxError
from sandbox.git.entries import StoredCommit
from sandbox.git.objects import parse_object_id, peel
from sandbox.git.process import LOCAL_DEADLINE_S, Git, GitResult
from sandbox.lazy_pattern import lazy_pattern

_REF = lazy_pattern(r"^[A-Za-z0-9_][A-Za-z0-9_.+@#%=-]*(/[A-Za-z0-9_][A-Za-z0-9_.+@#%=-]*)*$")
MAX_REF_LENGTH = 244

_REF_FORMAT = "%(refname) %(objecttype) %(objectname) %(tree)"
_ID_DIGITS = (40, 64)
_MOST_PACKED_BYTES = 1024**2
_REF_MODE = 0o644
_LOCK = ".lock"
_ABANDONED_S = LOCAL_DEADLINE_S + 30.0
_REF_LINE = lazy_pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\n")


def require_ref_name(name: str) -> str:
    """Return a branch or tag name if it matches our grammar, which is stricter than git's. Raises: `invalid_input`."""
    parts = name.split("/")
    bad = any(p.endswith((".", ".lock")) or ".." in p or "@{" in p or p == "@" for p in parts)
    if len(name) > MAX_REF_LENGTH or bad or not _REF.fullmatch(name):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The branch or tag name is not valid",
            details=ascii(name[:100]),
            hint="Use letters, digits, '.', '_', '-' and '/'; no revision expressions. `git rev-parse` prints the id "
            "of a commit, which can be given instead.",
        )
    return name


def resolve_ref(git: Git, full_name: str) -> str | None:
    """The object id of a full ref name, or None.

    Does not use rev-parse: it completes names, so a remote's tag `refs/remotes/origin/x` could pass for the branch.
    """
    return parse_object_id(git.attempt("show-ref", "--verify", "--hash", "--", full_name))


def resolve_ref_to_commit(git: Git, full_name: str) -> str | None:
    """The commit behind a full ref name, or None. One process where the ref names a commit, whose tree it also finds;
    none for a commit that was seen before.

    `full_name` has no characters of patterns: `require_ref_name`.
    """
    known = _read_ref_file(git.git_dir, full_name)
    if known and git.cache.trees.get(known):  # it is the id of a commit
        return known
    listed = git.attempt("for-each-ref", f"--format={_REF_FORMAT}", full_name)
    if listed.code != 0:  # a missing object, of this ref or of one below it
        oid = resolve_ref(git, full_name)
        return peel(git, oid, "commit") if oid else None
    for line in listed.stdout.decode().splitlines():
        name, kind, oid, tree = line.split(" ")
        if name == full_name and kind == "commit":
            git.cache.trees.store({oid: tree})
            return oid
        if name == full_name:
            return peel(git, oid, "commit")
    return None


def _read_ref_file(git_dir: Path, full_name: str) -> str | None:
    """The object id of a ref, from its file; None if git has to be asked. `full_name`: below `refs/`, without `..`.

    Source: gitrepository-layout(5): the file of a ref goes before its line in `packed-refs`, and a ref that is packed
    is written there before its file is deleted. Only a plain object id is read here; of all else (a symbolic ref, a
    missing ref, another ref storage) git is asked.
    """
    try:
        with (git_dir / full_name).open(encoding="ascii") as file:
            line = file.read(_ID_DIGITS[-1] + 2)
        return line.strip() if _REF_LINE.fullmatch(line) else None
    except FileNotFoundError:
        return _read_packed(git_dir / "packed-refs", full_name.encode())
    except (OSError, ValueError):
        return None


def _read_packed(path: Path, name: bytes) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_PACKED_BYTES + 1)
    except OSError:
        return None
    end = content.find(b" " + name + b"\n")
    if len(content) > _MOST_PACKED_BYTES or end < 0:
        return None
    start = content.rfind(b"\n", 0, end) + 1
    line = content[start:end].decode("ascii", errors="replace") + "\n"
    return line.strip() if _REF_LINE.fullmatch(line) else None


def move_ref(git: Git, full_name: str, new: str, old: str | None) -> None:
    """Compare-and-swap of a ref. `old`: None for a new one. Raises: `conflict` if the ref is no longer at `old`, or the
    clone has no commit `new`; `quota_exceeded`.
    """
    result = run_update_ref(git, [full_name], "--no-deref", full_name, new, old or "0" * len(new))
    if result.code != 0:
        raise _ref_error(git, [full_name], result.stderr)


def delete_ref(git: Git, full_name: str, oid: str) -> None:
    """Delete a ref that points to `oid`. Raises: the classified error, also if it points elsewhere."""
    git.run("update-ref", "--no-deref", "-d", full_name, oid)


def drop_ref(git: Git, full_name: str, oid: str = "") -> None:
    """As `delete_ref`, whatever the ref points to unless `oid` is given. An error is ignored: it may be gone, and
    the caller may be on its way out with another error.
    """
    with suppress(SandboxError):  # of the lock, or the clone
        git.attempt("update-ref", "-d", full_name, *filter(None, [oid]))


def move_ref_to_stored(git: Git, full_name: str, stored: StoredCommit, old: str) -> None:
    """As `move_ref`, for a commit that the caller has stored since it took the lock of `store_objects`, which it still
    holds. So the commit exists, which git need not prove: without a process if the ref has a file of its own.
    """
    if not _replace_ref_file(git.git_dir, full_name, stored.commit, old):
        move_ref(git, full_name, stored.commit, old)


def _replace_ref_file(git_dir: Path, full_name: str, new: str, old: str) -> bool:
    """Move a ref that has a file, as git does: create `<ref>.lock`, read the ref, put the lock in its place.

    `full_name`: below `refs/`, without `..`. False, and the ref is as it was, if git has to do it or to say why it
    cannot: another writer has the lock, the ref is elsewhere, packed, symbolic or has a reflog, the disk is full.
    Source: gitrepository-layout(5), and refs/files-backend.c of git 2.39, which syncs the lock if it is asked to.
    """
    lock = f"{git_dir}/{full_name}{_LOCK}"
    if os.path.lexists(git_dir / "logs"):
        return False
    try:
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _REF_MODE)
    except OSError:
        return False
    is_ours, is_moved = True, False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # while it is held, the lock is not abandoned, whatever the clock says
        is_ours = _is_at(fd, lock)
        is_moved = is_ours and _move_under_lock(fd, lock, new, old)
    except OSError:
        return False
    finally:
        if is_ours and not is_moved:
            with suppress(OSError):
                os.unlink(lock)  # noqa: PTH108 - a string, as above
        os.close(fd)
    return is_moved


def _move_under_lock(fd: int, lock: str, new: str, old: str) -> bool:
    """Put the lock in the place of its ref, if that is at `old`. Raises: `OSError`."""
    line = f"{new}\n".encode()
    if os.write(fd, line) != len(line):
        return False  # a full disk
    os.fchmod(fd, _REF_MODE)  # whatever the umask
    path = lock.removesuffix(_LOCK)
    if _read_own_file(path) != f"{old}\n".encode():
        return False
    os.fsync(fd)  # else a power failure could leave an empty ref
    os.rename(lock, path)  # noqa: PTH104 - a string
    return True


def _is_at(fd: int, path: str) -> bool:
    """Whether a path leads to an open file. Raises: `OSError`."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def run_update_ref(git: Git, names: Iterable[str], *args: str, stdin: bytes = b"") -> GitResult:
    """The result of `update-ref` for these refs. If it fails, and a killed process left locks of some of them, these
    are removed, and it runs once more. `names`: full, below `refs/`, without `..`.
    """
    result = git.attempt("update-ref", *args, stdin=stdin)
    if result.code != 0 and remove_abandoned_locks(git.git_dir, names):
        result = git.attempt("update-ref", *args, stdin=stdin)
    return result


def remove_abandoned_locks(git_dir: Path, names: Iterable[str]) -> bool:
    """Remove locks of refs that a killed process left, which no git ever does. Returns whether there was one."""
    try:
        with alone_to_remove_locks(git_dir):
            removed = [_remove_if_abandoned(f"{git_dir}/{name}{_LOCK}") for name in names]
    except OSError:
        return False
    return any(removed)


@contextmanager
def alone_to_remove_locks(git_dir: Path) -> Iterator[None]:
    """Those who remove locks of git exclude each other: else the second could remove the lock that the first has taken
    since. Raises: `OSError` without a clone.
    """
    folder = os.open(git_dir / "refs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _remove_if_abandoned(lock: str) -> bool:
    """Each writer of ours has a deadline, so an older lock has no owner, unless the clock was set or the host slept. In
    that case ours, which hold it by `flock`, keep it; git's do not.
    """
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(fd).st_mtime < _ABANDONED_S or not _is_at(fd, lock):
            return False
        os.unlink(lock)  # noqa: PTH108 - a string
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _read_own_file(path: str) -> bytes:
    """The start of a ref's file. Raises: `OSError` if the ref has no regular file of its own."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, _ID_DIGITS[-1] + 2)
    finally:
        os.close(fd)


def rename_ref(git: Git, old_name: str, new_name: str, target: str) -> None:
    """Delete a ref that points to `target`, and create another one there, in one step. Raises: as `move_ref`."""
    steps = f"option no-deref\ncreate {new_name} {target}\noption no-deref\ndelete {old_name} {target}\n"
    result = run_update_ref(git, [old_name, new_name], "--stdin", stdin=steps.encode())
    if result.code != 0:
        raise _ref_error(git, [new_name, old_name], result.stderr)


def _ref_error(git: Git, names: Sequence[str], stderr: str) -> SandboxError:
    _require_free_space(git, stderr)
    for name in names:
        if (git.git_dir / f"{name}{_LOCK}").is_file():
            return SandboxError(
                ErrorCode.CONFLICT,
                f"{name} is locked: another process changes it, or was killed while it did",
                details=stderr[:1000],
                hint=f"Repeat the operation. The lock of a killed process counts for {_ABANDONED_S:.0f} s, or until "
                "`sandbox gc`, which removes it after eleven minutes.",
            )
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{names[0]} was changed by another process",
        details=stderr[:1000],
        hint="Check the task's status and repeat the operation.",
    )


def _require_free_space(git: Git, stderr: str) -> None:
    """git does not say why it could not write a ref. Raises: `quota_exceeded` if no disk space is left."""
    room = os.statvfs(git.git_dir)
    if not room.f_bavail or (room.f_files and not room.f_favail):
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, DISK_FULL, details=stderr[:1000], hint=DISK_FULL_HINT)
