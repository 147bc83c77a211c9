"""The files of Git LFS of a tree: fetch what is missing from the remote's own server, for checkouts to hold.

Only where the operator wants it (`sandbox repo set REPO --lfs`, or `run --lfs yes`). The server is the one of the
registered remote: what `.lfsconfig` says is never read (docs/adr/0076).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sandbox.credentials import find_credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.lfs_pointers import PointedFile, list_pointed_files
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.lazy_module import LazyModule
from sandbox.policy.paths import show_path
from sandbox.remotes import Remote, lfs_endpoint, lfs_hosts, swap_protocol
from sandbox.store.records import find_repository
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_contents
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.repository_settings import read_settings
from sandbox.workspaces.large_files import NO_LARGE_FILES, LargeFiles
from sandbox.workspaces.lfs_objects import LfsObjects

if TYPE_CHECKING:
    from sandbox.forges import lfs_client
    from sandbox.forges.lfs_client import HostRules, Take
else:  # loaded at first use, with its library for HTTP
    lfs_client = LazyModule("sandbox.forges.lfs_client")

MAX_OBJECT_BYTES = 512 * 1024**2
"""As large as a changed file may be: a status reads it."""


def find_large_files(
    services: Services, repo_id: str, git: Git, trees: Sequence[str], *, wanted: bool | None = None
) -> LargeFiles:
    """The files of trees that Git LFS keeps, all of them on this host; none if they are not wanted. `wanted`: None: as
    the repository's settings say. Fetches objects that are missing.

    Raises: `quota_exceeded`; `unsafe_repository` for a pointer with extensions; `invalid_input` for a remote that is
    not reached over https; as `sandbox.forges.lfs_client.download`.
    """
    if not (read_settings(services.home, services.policies, repo_id).lfs if wanted is None else wanted):
        return NO_LARGE_FILES
    listed = [file for tree in dict.fromkeys(trees) for file in list_pointed_files(git, list_tree(git, tree))]
    if not listed:
        return NO_LARGE_FILES
    folder = services.home.lfs_objects(repo_id)
    _require_budget(services, listed)
    _fetch_missing(services, repo_id, LfsObjects(folder), listed)
    return LargeFiles(folder, tuple(listed))


def _require_budget(services: Services, files: Iterable[PointedFile]) -> None:
    """What pointers say is counted before anything is fetched: each may say what it likes. Raises: `quota_exceeded`."""
    most, total = services.settings.remotes.max_lfs_bytes, 0
    for file in files:
        total += file.pointer.size
        if file.pointer.size > MAX_OBJECT_BYTES or total > most:
            limit = f"remotes.max_lfs_bytes ({most:,})" if total > most else f"{MAX_OBJECT_BYTES:,} for one file"
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"The files of Git LFS are larger than {limit} bytes",
                details=f"{show_path(file.entry.path)[:200]} has {file.pointer.size:,} bytes, says its pointer",
                hint="`sandbox run --lfs no`, or `sandbox repo set REPO --unset lfs`, leaves the pointers in place.",
            )


def _fetch_missing(services: Services, repo_id: str, objects: LfsObjects, files: Iterable[PointedFile]) -> None:
    if not _list_missing(objects, files):
        return
    remote = _choose_route(services, repo_id)
    with services.home.locked(f"lfs-{repo_id}", services.settings.remotes.timeout_s):
        missing = _list_missing(objects, files)  # another process may have fetched them meanwhile
        with services.disk.admit(Writer.FETCH, demand_of_contents(file.pointer.size for file in missing)):
            services.remotes.run_over(remote, partial(_fetch, services, objects, missing))


def _list_missing(objects: LfsObjects, files: Iterable[PointedFile]) -> list[PointedFile]:
    by_id = {file.pointer.oid: file for file in files}
    return [file for file in by_id.values() if not objects.has(file.pointer)]


def _choose_route(services: Services, repo_id: str) -> Remote:
    """The remote over https: forges serve both. Raises: `invalid_input`."""
    remote = services.remotes.parse_registered(find_repository(services.home, repo_id).remote_url)
    route = remote if remote.protocol in {"https", "http"} else swap_protocol(remote)
    if route is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"Files of Git LFS are fetched over https, and the remote of {repo_id} is reached over {remote.protocol}",
            details=remote.url,
            hint="Clone the repository by its https URL, or leave the pointers in place: `sandbox run --lfs no`, "
            "`sandbox repo set REPO --unset lfs`.",
        )
    return route


def _fetch(services: Services, objects: LfsObjects, missing: Sequence[PointedFile], access: RemoteAccess) -> None:
    ours = services.settings.remotes
    server = lfs_client.LfsServer(
        endpoint=lfs_endpoint(access.remote),
        credential=access.credential,
        hosts=frozenset({*map(str.lower, ours.lfs_hosts), *lfs_hosts(access.remote)}),
        rules_of=partial(_find_rules, services),
        timeout_s=access.timeout_s,
        shutdown=access.shutdown,
    )
    done = 0

    def store(file: PointedFile, receive: Callable[[Take], None]) -> None:
        nonlocal done
        objects.add(file.pointer, receive)
        done += 1
        if access.progress:
            access.progress(f"Git LFS: {done} of {len(missing)} files")

    left = [file for file in missing if not objects.has(file.pointer)]  # a second try has a part of them
    lfs_client.download(server, left, store)


def _find_rules(services: Services, hostname: str, port: int) -> HostRules:
    found = find_credential(services.remotes.credentials.entries, hostname, port)
    return lfs_client.HostRules(found.ca_file if found else None, services.settings.remotes.proxy_of(hostname) or "")
