"""Files and checkouts that a killed process was creating or removing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.overlay import unmount
from sandbox.git.unfinished_packs import abandoned
from sandbox.store.home import REPOSITORY_FOLDERS
from sandbox.store.lockfile import is_abandoned, remove_abandoned
from sandbox.workbench.reconciling.survey import Finding, Survey, children, is_task_id, matching

_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{12}\.tmp$")
_PLACES = (
    ".*.tmp",
    "repositories/.*.tmp",
    "repositories/*/.*.tmp",
    "repositories/pristine/*/.*.tmp",
    "repositories/layers/*/*/.*.tmp",
    "repositories/logs/*/.*.tmp",
    "repositories/trust/*/.*.tmp",
    "quarantine/.*.tmp",
    "init/*/.*.tmp",
)
_HALF_PRISTINE = re.compile(r"^\..+\.[0-9a-f]{8}$")
_HALF_CLONE = re.compile(r"^\.(.+)\.incoming$")
_CORRUPT_CLONE = re.compile(r"^\..+\.corrupt-\d+$")
_REMOVED = re.compile(r"^\.(.+)\.removed-[0-9a-f]{16}$")
_UNFINISHED_OBJECTS = (
    "fast_import_crash_*",
    "objects/pack/tmp_*",
    "objects/pack/.tmp-*",
    "objects/[0-9a-f][0-9a-f]/tmp_*",
)
_GIT_LOCKS = ("*.lock", "refs/**/*.lock", "objects/**/*.lock")
_OLD_S = 60.0


def temporary_files(survey: Survey) -> Iterator[Finding]:
    """Temporary files of atomic writes. A live writer holds a lock on its file, so the age does not matter."""
    root = survey.parts.home.root
    for path in matching(root, *_PLACES):
        if _TEMPORARY.match(path.name) and is_abandoned(path):
            name = str(path.relative_to(root))
            yield Finding("temporary file", name, partial(_sweep, path))


def _sweep(path: Path) -> str | None:
    return "" if remove_abandoned(path) else None


def half_checkouts(survey: Survey) -> Iterator[Finding]:
    """Pristine checkouts that were being created or removed, under the lock that both operations need."""
    for folder in children(survey.parts.home.pristines("any").parent):
        lock = (f"pristine-{folder.name}",)
        for path in children(folder) if folder.is_dir() else ():
            if _HALF_PRISTINE.match(path.name) and path.is_dir():
                yield Finding("checkout", f"{folder.name}/{path.name}", _removal(path), locks=lock)


def courier_folders(survey: Survey) -> Iterator[Finding]:
    """Empty directories of the guest that extracts the PID 1 binary. It runs under a lock."""
    for path in matching(survey.parts.home.supervisors, "*/.workspace-*"):
        yield Finding("courier folder", path.name, _removal(path), locks=("supervisor",))


def half_clones(survey: Survey) -> Iterator[Finding]:
    """First clones that were not completed, and clones that a repair set aside."""
    for path in children(survey.parts.home.clone("any").parent):
        made = _HALF_CLONE.match(path.name)
        if made:
            yield Finding("clone", path.name, _removal(path), locks=(f"repository-{made[1]}",))
        elif _CORRUPT_CLONE.match(path.name):
            yield Finding("clone", path.name, note="a repair set it aside; delete it when it is no longer needed")


def half_removals(survey: Survey) -> Iterator[Finding]:
    """Folders that were renamed for removal but not completely deleted."""
    repositories = survey.parts.home.repositories
    places = [p for name in REPOSITORY_FOLDERS for p in children(repositories / name)]
    places += [p for name in ("layers", "worktrees") for repo in children(repositories / name) for p in children(repo)]
    for path in places:
        gone = _REMOVED.match(path.name)
        if gone and path.is_dir():
            locks = (gone[1] if is_task_id(gone[1]) else f"repository-{gone[1]}",)
            name = str(path.relative_to(repositories))
            yield Finding("removal", name, _removal(path, mounted=path.parent.name == "worktrees"), locks=locks)


def _removal(path: Path, *, mounted: bool = False) -> Callable[[], str | None]:
    def remove() -> str | None:
        if not path.exists():
            return None
        for inner in children(path) if mounted else ():
            unmount(inner)
        remove_tree(path)
        return ""

    return remove


def unfinished_objects(survey: Survey) -> Iterator[Finding]:
    """Packs and objects that git was writing, and its lock files, in the cache clones.

    Only files that no process has open: a git process outlives its killed controller. The age excludes files that git
    has just closed and is about to rename. If no other controller is alive, the age does not matter for objects: only
    an orphaned git process could rename them, and its result is not used.
    """
    clones = [p for p in children(survey.parts.home.clone("any").parent) if not p.name.startswith(".")]
    for clone in clones:
        lock = (f"repository-{clone.name}",)
        objects = matching(clone, *_UNFINISHED_OBJECTS)
        locks = matching(clone, *_GIT_LOCKS)
        alone = survey.is_alone() if objects or locks else False
        for path in objects:
            if abandoned(path) and (alone or _is_old(path)):
                yield Finding("object", f"{clone.name}/{path.name}", partial(_unlink, path), locks=lock)
        for path in locks:
            if abandoned(path) and _is_old(path):
                yield Finding("git lock", f"{clone.name}/{path.name}", partial(_unlink, path), locks=lock)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _OLD_S
    except FileNotFoundError:
        return False


def _unlink(path: Path) -> str | None:
    if not abandoned(path):
        return None
    path.unlink(missing_ok=True)
    return ""
