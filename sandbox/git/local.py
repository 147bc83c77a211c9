"""Remotes that are directories of this host: what git says of one that is no repository is written for networks."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import Remote


def path_of(remote: Remote) -> Path | None:
    """The directory of this host that a remote is; None for one on the network."""
    if remote.protocol != "file":
        return None
    return Path(unquote(urlsplit(remote.url).path, errors="surrogateescape"))


def require_repository(remote: Remote) -> None:
    """A remote on the network always passes. Raises: `remote_not_found` for a path where no repository can be."""
    path = path_of(remote)
    if path is None:
        return
    try:
        found = path.is_dir()
        brief = "" if found else f"There is no directory {path}"
        if found and not (path / ".git").exists() and not (path / "HEAD").exists():
            brief = f"{path} is no git repository"
    except OSError as error:
        brief = f"{path} cannot be read: {error.strerror}"
    if brief:
        raise SandboxError(
            ErrorCode.REMOTE_NOT_FOUND, brief, hint="A local path names the directory that holds .git, or a bare clone."
        )
