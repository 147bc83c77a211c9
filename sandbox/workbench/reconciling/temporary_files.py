"""Files and checkouts that a killed process was creating or removing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.mount_points import unmount_below
from sandbox.git.scratch_objects import FOLDER, is_in_use
from sandbox.git.stale_locks import list_stale_locks
from sandbox.git.temporary_folders import find_unused_folders
from sandbox.git.unfinished_packs import is_not_open
from sandbox.store.home import REPOSITORY_FOLDERS
from sandbox.store.lockfile import is_abandoned, remove_abandoned
from sandbox.workbench.reconciling.reconciler import (
    Finding,
    Reconciler,
    find_matching,
    is_left,
    is_old,
    is_task_id,
    list_folder,
)
from sandbox.workspaces.own_disk import remove_with_mounts

_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{12}\.tmp\Z")
_PLACES = tuple(
    f"{folder}.*.tmp"
    for folder in (
        "",
        "init/*/",
        "keys/",
        "quarantine/",
        "releases/*/",
        "releases/*/manifests/",
        "serve/receivers/",
        "repositories/",
        "repositories/*/",
        "repositories/candidates/*/*/",
        "repositories/compilers/*/*/",
        "repositories/dependencies/*/",
        "repositories/flaky/*/",
        "repositories/layers/*/*/",
        "repositories/logs/*/",
        "repositories/operations/*/",
        "repositories/operations/*/*/",
        "repositories/placed/*/",
        "repositories/pristine/*/",
        "repositories/trust/*/",
        "repositories/workspaces/*/",
    )
)
"""Where the home has records. Not where guests or trees have files, which may have such names as well."""
_HALF_PRISTINE = re.compile(r"^\..+\.[0-9a-f]{8}\Z")
_HALF_CLONE = re.compile(r"^\.(.+)\.incoming\Z")
_REMOVED = re.compile(r"^\.(.+)\.removed-[0-9a-f]{16}\Z")
_UNFINISHED_OBJECTS = (
    "fast_import_crash_*",
    "objects/pack/tmp_*",
    "objects/pack/.tmp-*",
    "objects/[0-9a-f][0-9a-f]/tmp_*",
)


def find_temporary_files(reconciler: Reconciler) -> Iterator[Finding]:
    """Temporary files of atomic writes. A live writer holds a lock on its file, so the age does not matter."""
    root = reconciler.services.home.root
    for path in find_matching(root, *_PLACES):
        if _TEMPORARY.match(path.name) and is_abandoned(path):
            name = str(path.relative_to(root))
            yield Finding("temporary file", name, partial(_remove_temporary, path))


def _remove_temporary(path: Path) -> str | None:
    return "" if remove_abandoned(path) else None


def find_half_checkouts(reconciler: Reconciler) -> Iterator[Finding]:
    """Pristine checkouts that were being created or removed, under the lock that both operations need."""
    for folder in list_folder(reconciler.services.home.pristines("any").parent):
        lock = (f"pristine-{folder.name}",)
        for path in list_folder(folder) if folder.is_dir() else ():
            if _HALF_PRISTINE.match(path.name) and path.is_dir():
                yield Finding("checkout", f"{folder.name}/{path.name}", _build_removal(path), locks=lock)


def find_disk_templates(reconciler: Reconciler) -> Iterator[Finding]:
    """Templates of disks that were not completed. Making one takes a moment and has no lock; it may be done in
    another thread of this process.
    """
    found = find_matching(reconciler.services.home.disk_templates, ".*.img.*")
    if found and reconciler.is_alone():
        for path in filter(is_left, found):
            yield Finding("disk template", path.name, partial(_unlink, path))


def find_courier_folders(reconciler: Reconciler) -> Iterator[Finding]:
    """Empty directories of the guest that extracts the PID 1 binary. It runs under a lock."""
    for path in find_matching(reconciler.services.home.supervisors, "*/.workspace-*"):
        yield Finding("courier folder", path.name, _build_removal(path), locks=("supervisor",))


def find_half_clones(reconciler: Reconciler) -> Iterator[Finding]:
    """First clones that were not completed."""
    for path in list_folder(reconciler.services.home.clone("any").parent):
        made = _HALF_CLONE.match(path.name)
        if made:
            yield Finding("clone", path.name, _build_removal(path), locks=(f"repository-{made[1]}",))


def find_half_removals(reconciler: Reconciler) -> Iterator[Finding]:
    """Folders that were renamed for removal but not completely deleted."""
    repositories = reconciler.services.home.repositories
    places = [p for name in REPOSITORY_FOLDERS for p in list_folder(repositories / name)]
    places += [
        p for name in ("layers", "worktrees") for repo in list_folder(repositories / name) for p in list_folder(repo)
    ]
    for path in places:
        gone = _REMOVED.match(path.name)
        if gone and path.is_dir():
            locks = (gone[1] if is_task_id(gone[1]) else f"repository-{gone[1]}",)
            name = str(path.relative_to(repositories))
            yield Finding("removal", name, _build_removal(path, mounted=True), locks=locks)


def _build_removal(path: Path, *, mounted: bool = False) -> Callable[[], str | None]:
    def remove() -> str | None:
        if not path.exists():
            return None
        if mounted:
            unmount_below(path)
            remove_with_mounts(path)
        else:
            remove_tree(path)
        return ""

    return remove


def find_unfinished_objects(reconciler: Reconciler) -> Iterator[Finding]:
    """Packs and objects that git was writing, and its lock files, in the cache clones.

    Only files that no process has open: a git process outlives its killed controller. The age excludes files that git
    has just closed and is about to rename. If no other controller is alive, the age does not matter for objects: only
    an orphaned git process could rename them, and its result is not used.
    """
    clones = [p for p in list_folder(reconciler.services.home.clone("any").parent) if not p.name.startswith(".")]
    for clone in clones:
        lock = (f"repository-{clone.name}",)
        objects = find_matching(clone, *_UNFINISHED_OBJECTS)
        alone = reconciler.is_alone() if objects else False
        for path in objects:
            if is_not_open(path) and (alone or is_old(path)):
                yield Finding("object", f"{clone.name}/{path.name}", partial(_unlink, path), locks=lock)
        for path in list_stale_locks(clone):
            yield Finding("git lock", f"{clone.name}/{path.name}", partial(_unlink, path), locks=lock)


def find_scratch_objects(reconciler: Reconciler) -> Iterator[Finding]:
    """Objects of looks at tasks. A live process holds a lock on their directory.

    It takes the lock right after it creates the directory, hence the age if another controller is alive.
    """
    clones = reconciler.services.home.clone("any").parent
    stores = [path for path in find_matching(clones, f"*/{FOLDER}/*") if not is_in_use(path)]
    alone = reconciler.is_alone() if stores else False
    for path in stores:
        if alone or is_old(path):
            yield Finding("scratch objects", str(path.relative_to(clones)), _build_removal(path))


def find_temporary_folders(_: Reconciler) -> Iterator[Finding]:
    """Directories of network commands in the temporary directory of the host. They belong to no home, so they are not
    reported. A live process holds a lock on its own.
    """
    for path in find_unused_folders():
        yield Finding("temporary folder", path.name, partial(_remove_unreported, path), forecast=lambda: None)


def _remove_unreported(path: Path) -> None:
    if path.exists() and not is_in_use(path):
        remove_tree(path)


def _unlink(path: Path) -> str | None:
    if not is_not_open(path):
        return None
    path.unlink(missing_ok=True)
    return ""
