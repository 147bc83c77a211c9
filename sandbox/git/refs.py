"""Refs of one bare repository, by full name: resolve, move and rename them.

No text of a caller becomes a revision expression.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from sandbox.errors import DISK_FULL, DISK_FULL_HINT, ErrorCode, SandboxError
from sandbox.git.objects import parse_object_id, peel
from sandbox.git.process import LOCAL_DEADLINE_S, Git
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


def move_ref(git: Git, full_name: str, new: str, old: str) -> None:
    """Compare-and-swap of a ref. Raises: `conflict` if the ref is no longer at `old`; `quota_exceeded`.

    Without a process if the ref has a file of its own, and `new` is the id of a commit that was seen before.
    """
    if git.cache.trees.get(new) and _replace_ref_file(git.git_dir, full_name, new, old):
        return
    args = ("update-ref", "--no-deref", full_name, new, old)
    result = git.attempt(*args)
    if result.code != 0 and _remove_abandoned_lock(git.git_dir, full_name):
        result = git.attempt(*args)
    if result.code != 0:
        raise _ref_error(git, full_name, result.stderr)


def _replace_ref_file(git_dir: Path, full_name: str, new: str, old: str) -> bool:
    """Move a ref that has a file, as git does: create `<ref>.lock`, read the ref, put the lock in its place.

    `full_name`: below `refs/`, without `..`. False, and the ref is as it was, if git has to do it or to say why it
    cannot: another writer has the lock, the ref is elsewhere, packed, symbolic or has a reflog, the disk is full.
    Source: gitrepository-layout(5), and refs/files-backend.c of git 2.39, which does not sync a ref either.
    """
    path = f"{git_dir}/{full_name}"
    lock = f"{path}{_LOCK}"
    if os.path.lexists(git_dir / "logs"):
        return False
    try:
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _REF_MODE)
    except OSError:
        return False
    is_moved = False
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(f"{new}\n".encode())
            os.fchmod(fd, _REF_MODE)  # whatever the umask
        if _read_own_file(path) == f"{old}\n".encode():
            os.rename(lock, path)  # noqa: PTH104 - strings, as above
            is_moved = True
    except OSError:
        return False
    finally:
        if not is_moved:
            with suppress(OSError):
                os.unlink(lock)  # noqa: PTH108 - a string, as above
    return is_moved


def _remove_abandoned_lock(git_dir: Path, full_name: str) -> bool:
    """Remove the lock of a ref that a killed process left, which no git ever does. Returns whether there was one.

    Each writer of ours has a deadline, so an older lock has no owner. Those who remove locks exclude each other: else
    the second could remove the lock that the first has taken since.
    """
    lock = git_dir / f"{full_name}{_LOCK}"
    folder = os.open(git_dir / "refs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if time.time() - lock.lstat().st_mtime < _ABANDONED_S:
            return False
        lock.unlink()
    except OSError:
        return False
    finally:
        os.close(folder)
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
    result = git.attempt("update-ref", "--stdin", stdin=steps.encode())
    if result.code != 0:
        raise _ref_error(git, new_name, result.stderr)


def _ref_error(git: Git, full_name: str, stderr: str) -> SandboxError:
    _require_free_space(git, stderr)
    return SandboxError(
        ErrorCode.CONFLICT,
        f"{full_name} was changed by another process",
        details=stderr[:1000],
        hint="Check the task's status and repeat the operation.",
    )


def _require_free_space(git: Git, stderr: str) -> None:
    """git does not say why it could not write a ref. Raises: `quota_exceeded` if no disk space is left."""
    room = os.statvfs(git.git_dir)
    if not room.f_bavail or (room.f_files and not room.f_favail):
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, DISK_FULL, details=stderr[:1000], hint=DISK_FULL_HINT)
