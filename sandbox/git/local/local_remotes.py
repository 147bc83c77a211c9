"""Remotes that are directories of this host: find the repository, and report when there is none.

git's own message for a directory that is not a repository is about network remotes.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import Remote


def local_path_of(remote: Remote) -> Path | None:
    """The directory of a local remote; None for a remote on the network."""
    if remote.protocol != "file":
        return None
    return Path(unquote(urlsplit(remote.url).path, errors="surrogateescape"))


def find_enclosing_repository(path: Path) -> Path:
    """The directory itself if it is a repository, else the closest parent that has a `.git`, as git searches.

    Only on the same file system, and only where `.git` and its directory belong to us or to the owner of `path`:
    another user may have put a `.git` into a directory that is writable for all. No file there is opened. Returns
    `path` if there is no repository.
    """
    if not path.is_dir() or _is_repository(path):
        return path
    here = path.resolve()
    device, owners = here.stat().st_dev, {here.stat().st_uid, os.geteuid()}
    for folder in here.parents:
        if folder.stat().st_dev != device:
            break
        if _is_repository(folder, bare=False):
            trusted = {folder.stat().st_uid, (folder / ".git").lstat().st_uid} <= owners
            return folder if trusted else path
    return path


def _is_repository(path: Path, *, bare: bool = True) -> bool:
    return (path / ".git").exists() or (bare and (path / "HEAD").exists())


def find_local_problem(path: Path) -> tuple[str, str] | None:
    """Why a path is no repository that can be cloned, and what to do; None for one. Raises: OSError."""
    hint = "Name the directory that contains .git, or a bare clone."
    if not path.is_dir():
        return (f"{path} is not a directory" if path.exists() else f"There is no directory {path}"), hint
    if _is_repository(path):
        return None
    return (
        f"{path} is not a git repository",
        f"{hint} A directory of files becomes one: git init, git add --all, git commit.",
    )


def require_local_repository(remote: Remote) -> None:
    """Accepts every remote on the network. Raises: `remote_not_found` for a local path without a repository."""
    path = local_path_of(remote)
    if path is None:
        return
    try:
        problem = find_local_problem(path)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}", "Name a directory that you can read."
    if problem:
        raise SandboxError(ErrorCode.REMOTE_NOT_FOUND, problem[0], hint=problem[1])
