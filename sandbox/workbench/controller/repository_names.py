"""Find the repository that a person names: by its id's end or beginning, owner and name, URL, or a directory."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.local.local_remotes import find_enclosing_repository, local_path_of
from sandbox.models import Repository
from sandbox.store.home import Home
from sandbox.store.records import list_repositories, not_found_error
from sandbox.store.short_ids import ambiguous_error
from sandbox.workbench.controller.remote_access import RemoteConnector

_PLACE = re.compile(r"\.{1,2}\Z|\.{0,2}/|~/|[a-z+]+://|[\w.-]+@[\w.-]+:")
"""How a path or URL begins."""


def complete_repo_id(home: Home, remotes: RemoteConnector, name: str) -> str:
    """The id of the only registered repository with this name; a name that fits none unchanged.

    Raises: `invalid_input` when several fit; `not_found` for a directory or URL that is not registered, and for the
    name of a directory without its path, which is never taken for the repository around it.
    """
    known = list_repositories(home)
    if any(repository.id == name for repository in known):
        return name
    if _PLACE.match(name):
        return _find_by_place(known, remotes, name)
    found = [repository for repository in known if _fits(repository, name.lower())]
    if not found and "-" in name.rstrip("-"):  # more than the host, which names no repository
        found = [repository for repository in known if repository.id.startswith(name)]
    if len(found) > 1:
        fitting = [f"{repository.id}  {repository.remote_url}" for repository in found]
        raise ambiguous_error(f"'{name[:100]}' fits {len(found)} repositories", fitting, "Give more of the id.")
    if not found and os.path.isdir(name):  # noqa: PTH112 - never raises
        hint = f"A directory is named with its path: `./{name[:100]}`. `sandbox repo list` shows all repositories."
        raise not_found_error("repository", name, (repository.id for repository in known), hint)
    return found[0].id if found else name


def _fits(repository: Repository, name: str) -> bool:
    owned = f"{repository.owner}/{repository.name}".lower()
    names = {repository.name.lower(), owned, f"{repository.hostname}/{owned}".lower()}
    return bool(name) and (name in names or repository.id.endswith((f"-{name}", f".{name}")))


def _find_by_place(known: tuple[Repository, ...], remotes: RemoteConnector, name: str) -> str:
    remote = remotes.parse(find_repository_url(remotes, name))
    identity = (remote.hostname, remote.owner, remote.name)
    found = [r.id for r in known if identity == (r.hostname, r.owner, r.name)]
    if not found:
        where = remote.url.removeprefix("file://")  # not the given text, which may hold a secret
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The repository {where} is not registered",
            hint=f"`sandbox repo clone {where}` adds it; `sandbox repo list` shows all.",
        )
    return found[0]


def find_repository_url(remotes: RemoteConnector, url: str) -> str:
    """The URL of the repository that contains a directory of this host; any other URL unchanged."""
    path = local_path_of(remotes.parse(url))
    try:
        enclosing = path and find_enclosing_repository(path)
    except OSError:
        return url
    return url if enclosing is None or enclosing == path else f"file://{quote(str(enclosing))}"
