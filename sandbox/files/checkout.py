"""Lay a tree out on disk with our own writer, and take trees away again.

git's checkout applies filters, end-of-line rules and hooks; here the bytes on disk are the bytes of the blobs
(THREATS E16, I03). The target is a new directory that no guest has seen.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import is_dotgit

FileSpec = tuple[bytes, str, bytes]
"""(path, git mode, content); for mode 120000 the content is the link's target."""


def check_out(root: Path, files: Iterable[FileSpec], owner: tuple[int, int] | None) -> int:
    """Write `files` below the new directory `root`. Returns their number.

    Raises: `unsafe_repository` for names that must not exist; nothing is left then.
    """
    root.mkdir(parents=True, mode=0o700)
    try:
        count = _write_all(os.fsencode(root), files, owner)
        if owner is not None:
            os.chown(root, *owner)
        root.chmod(0o755)
    except BaseException:
        remove_tree(root)
        raise
    return count


def _write_all(base: bytes, files: Iterable[FileSpec], owner: tuple[int, int] | None) -> int:
    made: set[bytes] = {b""}
    count = 0
    for path, mode, content in files:
        _check_components(path)
        _make_parents(base, os.path.dirname(path), made, owner)
        target = base + b"/" + path
        if mode == "120000":
            os.symlink(content, target)
            if owner is not None:
                os.chown(target, *owner, follow_symlinks=False)
        else:
            _write_file(target, content, 0o755 if mode == "100755" else 0o644, owner)
        count += 1
    return count


def _check_components(path: bytes) -> None:
    for name in path.split(b"/"):
        if name in {b"", b".", b".."} or is_dotgit(name):
            raise SandboxError(
                ErrorCode.UNSAFE_REPOSITORY, "The tree holds a name that may not be checked out", details=ascii(path)
            )


def _make_parents(base: bytes, folder: bytes, made: set[bytes], owner: tuple[int, int] | None) -> None:
    if folder in made:
        return
    _make_parents(base, os.path.dirname(folder), made, owner)
    target = base + b"/" + folder
    # A plain mkdir: were a link of the same name checked out before, this fails instead of following it.
    os.mkdir(target, 0o755)
    if owner is not None:
        os.chown(target, *owner, follow_symlinks=False)
    made.add(folder)


def _write_file(target: bytes, content: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def remove_tree(root: Path) -> None:
    """Delete a directory whatever a guest left in it: other owners, modes 000, deep nests. Links are not followed.

    Raises: `internal` when something stays, naming what to do.
    """
    for _ in range(3):
        shutil.rmtree(root, ignore_errors=True)
        if not root.is_symlink() and not root.exists():
            return
        _open_modes(root)
    raise SandboxError(
        ErrorCode.INTERNAL,
        "A worktree could not be removed completely",
        details=str(root),
        hint="Remove it as root; files of the guest's uid may be left when the controller is not root.",
    )


def _open_modes(root: Path) -> None:
    for folder, names, _ in os.walk(root, followlinks=False, onerror=None):
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink() and stat.S_ISDIR(path.lstat().st_mode):
                path.chmod(0o700)
