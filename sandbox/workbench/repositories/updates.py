"""Use-cases that fetch what is new of a registered remote: `repo update`, and the fetch before a task begins.

No question for an agent: the remote is known, and only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import read_last_fetch_time, resolve_commit
from sandbox.git.objects import is_ancestor
from sandbox.git.process import Git
from sandbox.git.transport import TASK_BRANCHES
from sandbox.models import Repository, RepositoryUpdate
from sandbox.store.home import Home
from sandbox.store.records import find_repository, list_repositories
from sandbox.text import format_utc
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import UpdatedRepository, update_cache

_MOST_COMPARED = 200
"""Branches that changed and are compared, each by a process of git."""


def update_repository(services: Services, repo_id: str) -> RepositoryUpdate:
    """Fetch what is new; one request if all is known. Raises: `not_found`; as `update_cache`."""
    repository, git = services.repositories.open(repo_id)
    before = _list_branches(git)
    updated = _update(services, repository)
    default = updated.repository.default_branch
    return RepositoryUpdate(
        repo_id=repo_id,
        default_branch=default,
        before=before.get(repository.default_branch),
        after=resolve_commit(updated.git, "HEAD", default),
        default_before=repository.default_branch if repository.default_branch != default else None,
        rewritten=_find_rewritten(updated.git, before),
    )


def _update(services: Services, repository: Repository) -> UpdatedRepository:
    return update_cache(services, repository.remote_url, only_if_changed=True)


def _list_branches(git: Git) -> dict[str, str]:
    """The remote's branches and their commits, but for those of tasks."""
    place = "refs/remotes/origin/"
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname)", place).decode(errors="replace")
    rows = (line.partition(f" {place}") for line in listed.splitlines())
    return {name: oid for oid, _, name in rows if not name.startswith(TASK_BRANCHES) and name != "HEAD"}


def _find_rewritten(git: Git, before: Mapping[str, str]) -> tuple[str, ...]:
    """The branches that do not have their commit of before any more."""
    now = _list_branches(git)
    moved = [name for name, oid in before.items() if now.get(name, oid) != oid][:_MOST_COMPARED]
    return tuple(name for name in moved if not is_ancestor(git, before[name], now[name]))


def update_all(services: Services) -> tuple[RepositoryUpdate, ...]:
    """As `update_repository` for each registered repository; one that fails has the error, the others go on."""
    return tuple(_try_update(services, repository) for repository in list_repositories(services.home))


def _try_update(services: Services, repository: Repository) -> RepositoryUpdate:
    try:
        return update_repository(services, repository.id)
    except SandboxError as error:
        brief = f"{error.code.value}: {error.brief}"
        return RepositoryUpdate(repo_id=repository.id, default_branch=repository.default_branch, error=brief)


def fetch_for_task(services: Services, repo_id: str, command: str) -> None:
    """Fetch what is new before a task begins or moves by `command`. A remote that this surface may not use is left as
    it is: a path of this host, for agents.

    Raises: as `update_cache`; the hint says how old the last fetch is.
    """
    repository = find_repository(services.home, repo_id)
    try:
        services.remotes.parse(repository.remote_url)
    except SandboxError as error:
        if error.code is ErrorCode.INVALID_INPUT:
            return
        raise
    try:
        _update(services, repository)
    except SandboxError as error:
        fetched = find_fetch_time(services.home, repo_id)
        age = f", of {format_utc(fetched)}" if fetched else ""
        hint = f"{error.hint} Offline, it uses the last fetch{age}: `{command} --offline`."
        raise error.with_hint(hint.strip()) from error


def find_fetch_time(home: Home, repo_id: str) -> datetime | None:
    """When the cache clone was last compared with its remote; None if that is unknown."""
    seconds = read_last_fetch_time(home.clone(repo_id))
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
