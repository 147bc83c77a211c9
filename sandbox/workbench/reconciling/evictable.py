"""What may go when a home holds too much, tier by tier, with the reason why it may (docs/adr/0102).

First clones are packed again. Then goes what this host can make again without a network: checkouts without a worktree,
caches of compilers, candidates. Then what it can fetch or build again: layers, objects of Git LFS. Then results of old
runs: verdicts, artifacts, logs. What was used within the last hour stays, as do results of the last day and those of
the newest runs of each open task and repository: a limit that is too small must not make the work at hand impossible.

Other state is never evicted: no commit, snapshot, worktree, task, record, journal, approval, release or key.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.disk_usage import DiskUse, TooDeepError, disk_use_of, measure_disk_use
from sandbox.git.maintenance import DAY_S, is_repack_due
from sandbox.lazy_dataclass import dataclass
from sandbox.models import TaskStatus
from sandbox.store import artifact_store
from sandbox.store.candidates import forget_candidate
from sandbox.store.home import newest_files
from sandbox.store.layers import LayerStore
from sandbox.store.records import list_tasks
from sandbox.store.verdicts import remove_unchanged
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.clone_objects import repack_clone
from sandbox.workbench.reconciling.reconciler import Finding, find_matching, is_task_id, list_folder
from sandbox.workbench.reconciling.retention import age_s, is_output, list_logs, unlink_all, written_at
from sandbox.workbench.reconciling.unused_layers import remove_if_unused
from sandbox.workbench.tasks.worktrees import list_checkouts_in_use
from sandbox.workspaces.lfs_objects import LfsObjects
from sandbox.workspaces.pristine import find_unused, remove_checkout

GRACE_S = 3600.0
"""What was used within this time is not evicted."""

RESULTS_S = DAY_S
"""Nor are results of this time."""

KEPT_RUNS = 3
"""Nor logs and artifacts of so many runs of each open task and each repository, the newest."""

_VERDICTS_AT_ONCE = 500


@dataclass(frozen=True)
class Evictable:
    """Something that may go; the note of its finding says why. `repo_id`: of its repository; '' for the home."""

    finding: Finding
    repo_id: str
    last_use: float


def find_clones(services: Services) -> Iterator[Evictable]:
    """Clones that changed and were not packed for a day. What that frees is not known before."""
    for clone in list_folder(services.home.clone("any").parent):
        if not clone.name.startswith(".") and (clone / "HEAD").is_file() and is_repack_due(clone, time.time(), DAY_S):
            remedy, lock = partial(repack_clone, services, clone), f"repository-{clone.name}"
            yield Evictable(Finding("clone objects", clone.name, remedy, locks=(lock,), note="packed"), clone.name, 0.0)


def find_checkouts(services: Services) -> Iterator[Evictable]:
    """Pristine checkouts without a worktree or room above them."""
    for folder in list_folder(services.home.pristines("any").parent):
        try:
            unused = find_unused(folder, list_checkouts_in_use(services.home, folder.name), GRACE_S)
        except (SandboxError, OSError):
            continue  # their use cannot be determined now
        for path in unused:
            remedy, lock = partial(_remove_checkout, services, path), f"pristine-{folder.name}"
            yield _of_folder("checkout", path, remedy, lock, "no worktree is above it")


def _remove_checkout(services: Services, path: Path) -> str | None:
    """The caller holds the lock, so no worktree is just created above it."""
    if path not in find_unused(path.parent, list_checkouts_in_use(services.home, path.parent.name), GRACE_S):
        return None
    remove_checkout(path)
    return ""


def find_compiler_caches(services: Services) -> Iterator[Evictable]:
    """None while there are clean rooms, which may be about to mount one."""
    if _has_rooms(services):
        return
    for folder in list_folder(services.home.compiler_caches("any").parent):
        for path in list_folder(folder):
            if _is_unused(path, GRACE_S):
                lock, note = f"compilers-{folder.name}", "clean rooms compile without it"
                yield _of_folder("compiler cache", path, partial(_remove_compiler_cache, services, path), lock, note)


def _has_rooms(services: Services) -> bool:
    return bool(list_folder(services.home.clean_room("any").parent))


def _remove_compiler_cache(services: Services, path: Path) -> str | None:
    """A room that chose the cache since it was listed counts as a use of it, also before it has its directory."""
    if _has_rooms(services) or not _is_unused(path, GRACE_S):
        return None
    remove_tree(path)
    return ""


def find_candidates(services: Services) -> Iterator[Evictable]:
    """Candidates of applications, and what killed launches left of theirs."""
    for folder in list_folder(services.home.candidates("any").parent):
        for path in list_folder(folder):
            keep_s = RESULTS_S if path.name.startswith(".") else GRACE_S
            if _is_unused(path, keep_s):
                lock, note = f"candidates-{folder.name}", "a new launch makes it again"
                yield _of_folder("candidate", path, partial(_remove_candidate, path, keep_s), lock, note)


def _remove_candidate(path: Path, keep_s: float) -> str | None:
    """A launch may have made it anew since it was listed."""
    return forget_candidate(path) if _is_unused(path, keep_s) else None


def find_layers(services: Services) -> Iterator[Evictable]:
    """Layers of dependencies. One that checks use is `busy`."""
    store = LayerStore(services.home)
    for layer in store.list_layers():
        last_use = store.find_last_use(layer)
        used_at = last_use.timestamp()
        if time.time() - used_at > GRACE_S:
            remedy, size = partial(remove_if_unused, store, layer, last_use), _measure(store.tree(layer))
            yield Evictable(
                Finding("layer", layer.key[:12], remedy, note="built again when it is needed", bytes=size), "", used_at
            )


def find_large_files(services: Services) -> Iterator[Evictable]:
    """Objects of Git LFS, all of a repository at once."""
    for folder in list_folder(services.home.lfs_objects("any").parent):
        objects = LfsObjects(folder)
        if unused := objects.find_unused(GRACE_S):
            remedy = partial(_run, partial(objects.remove_unused, GRACE_S))
            note = f"{len(unused)} objects; fetched again when they are needed"
            finding = Finding(
                "lfs objects", folder.name, remedy, locks=(f"pristine-{folder.name}",), note=note, bytes=_sum(unused)
            )
            yield Evictable(finding, folder.name, max(map(written_at, unused)))


def find_verdicts(services: Services) -> Iterator[Evictable]:
    """Cached verdicts that are a day old, some at once."""
    stored = find_matching(services.home.verdict("any").parent, "[0-9a-f]*.json")
    old = sorted((at, path) for path in stored if (at := written_at(path)) < time.time() - RESULTS_S)
    for first in range(0, len(old), _VERDICTS_AT_ONCE):
        at, listed = old[first][0], {path: at for at, path in old[first : first + _VERDICTS_AT_ONCE]}
        paths, remedy = list(listed), partial(remove_unchanged, services.home, listed)
        name = f"{len(paths)} since {time.strftime('%Y-%m-%d', time.gmtime(at))}"
        note = "their checks run again when they are asked for"
        yield Evictable(Finding("verdicts", name, remedy, note=note, bytes=_sum(paths)), "", at)


def find_artifacts(services: Services) -> Iterator[Evictable]:
    """Of old runs. A content belongs to all lists that name it, so it goes with the last of them."""
    names = Counter[str]()
    for path in artifact_store.list_all(services.home):
        names.update(_list_artifacts(path).keys())
    for folder, repo_id, kept in _list_owners(services):
        lists = [
            path for run in list_old_runs(folder, kept) if (path := run.with_suffix(artifact_store.SUFFIX)).exists()
        ]
        size = 0
        for path in lists:
            for sha256, content_bytes in _list_artifacts(path).items():
                names[sha256] -= 1
                size += 0 if names[sha256] else content_bytes
        if lists:
            note, remedy = f"of {len(lists)} runs older than a day", partial(_remove_artifacts, services, lists)
            yield Evictable(
                Finding("artifacts", folder.name, remedy, note=note, bytes=size), repo_id, written_at(lists[0])
            )


def _remove_artifacts(services: Services, lists: Sequence[Path]) -> str:
    """A remedy. No list goes for contents that stay. Raises: `internal` if another list cannot be read."""
    unused = artifact_store.find_unused(services.home, without=lists)
    unlink_all(lists)
    artifact_store.remove_unused(unused)
    return ""


def _list_artifacts(path: Path) -> dict[str, int]:
    """For the forecast of what is freed: none if the list cannot be read."""
    try:
        return artifact_store.list_names(path)
    except SandboxError:
        return {}


def find_logs(services: Services) -> Iterator[Evictable]:
    """Output of old runs. The records of the runs are kept, and what receipts need."""
    for folder, repo_id, kept in _list_owners(services):
        runs = list_old_runs(folder, kept)
        logs = [path for path in list_logs(runs) if is_output(path)]
        if logs:
            note = f"output of {len(runs)} runs older than a day; their records are kept"
            finding = Finding("logs", folder.name, partial(unlink_all, logs), note=note, bytes=_sum(logs))
            yield Evictable(finding, repo_id, written_at(runs[0]))


TIERS: tuple[tuple[Callable[[Services], Iterator[Evictable]], ...], ...] = (
    (find_clones,),
    (find_checkouts, find_compiler_caches, find_candidates),
    (find_layers, find_large_files),
    (find_verdicts,),
    (find_artifacts,),
    (find_logs,),
)


def list_old_runs(folder: Path, kept: int) -> list[Path]:
    """Records of runs of a folder, but not those of the last day and not the newest `kept`; the oldest first."""
    old = [path for path in newest_files(folder)[kept:] if written_at(path) < time.time() - RESULTS_S]
    return old[::-1]


def _list_owners(services: Services) -> Iterator[tuple[Path, str, int]]:
    """The folders of logs, each with the repository that it belongs to, and how many runs it keeps in any case."""
    tasks = {task.id: task for task in list_tasks(services.home)}
    for folder in sorted(services.home.all_logs()):
        task = tasks.get(folder.name)
        if task is not None:
            yield folder, task.repo_id, 0 if task.status is TaskStatus.CLOSED else KEPT_RUNS
        elif is_task_id(folder.name):
            yield folder, "", 0
        else:
            yield folder, folder.name, KEPT_RUNS


def _of_folder(kind: str, path: Path, remedy: Callable[[], str | None], lock: str, note: str) -> Evictable:
    """A directory in one of its repository's name."""
    name = f"{path.parent.name}/{path.name[:19]}"
    return Evictable(
        Finding(kind, name, remedy, locks=(lock,), note=note, bytes=_measure(path)), path.parent.name, written_at(path)
    )


def _measure(folder: Path) -> int:
    used = DiskUse()
    try:
        for one in measure_disk_use(folder, one_device=True):
            used += one
    except (OSError, TooDeepError):
        pass  # about what it frees
    return used.bytes


def _sum(paths: Sequence[Path]) -> int:
    used = DiskUse()
    for path in paths:
        try:
            used += disk_use_of(path.lstat())
        except FileNotFoundError:
            continue
    return used.bytes


def _is_unused(path: Path, keep_s: float) -> bool:
    """Whether it is there, and last changed longer ago."""
    return age_s(path) > keep_s


def _run(remove: Callable[[], None]) -> str:
    remove()
    return ""
