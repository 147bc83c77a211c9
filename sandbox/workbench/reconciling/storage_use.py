"""Measure what each kind of state of a home takes on disk: one walk over all of it, each name counted once.

Mounts are left out: a worktree shows files of the checkout below it, and what its task changed is beside it. The disk
of a task counts with the blocks that its image has.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from sandbox.files.disk_usage import DiskUse, TooDeepError, disk_use_of, measure_disk_use
from sandbox.lazy_dataclass import dataclass
from sandbox.models.storage import StorageKind
from sandbox.store.home import Home
from sandbox.store.records import list_tasks

_NO_USE = DiskUse()
_OF_REPOSITORIES = {
    "clones": StorageKind.CLONES,
    "pristine": StorageKind.CHECKOUTS,
    "lfs": StorageKind.LFS,
    "compilers": StorageKind.COMPILER_CACHES,
    "candidates": StorageKind.CANDIDATES,
    "trust": StorageKind.OTHER,
    "flaky": StorageKind.OTHER,
}
"""Folders of `repositories` with a folder for each repository."""

_OF_THE_HOME = {
    "artifacts": StorageKind.ARTIFACTS,
    "dependencies": StorageKind.LAYERS,
    "journal": StorageKind.JOURNALS,
    "rooms": StorageKind.ROOMS,
    "verdicts": StorageKind.VERDICTS,
    "workspaces": StorageKind.WORKSPACES,
}
_LOG_SUFFIXES = {".stdout", ".stderr"}

Key = tuple[StorageKind, str]
"""A kind of state, and the repository that it belongs to; '' for none."""


@dataclass
class HomeUse:
    """What was measured. `worktrees`, `logs`: by task. `incomplete`: what has directories nested too deep."""

    uses: defaultdict[Key, DiskUse] = field(default_factory=lambda: defaultdict(DiskUse))
    worktrees: defaultdict[str, DiskUse] = field(default_factory=lambda: defaultdict(DiskUse))
    logs: defaultdict[str, DiskUse] = field(default_factory=lambda: defaultdict(DiskUse))
    incomplete: set[Key] = field(default_factory=set)

    @property
    def total(self) -> DiskUse:
        """All of it."""
        return sum(self.uses.values(), _NO_USE)

    def of_repository(self, repo_id: str) -> DiskUse:
        """All that belongs to this repository."""
        return sum((use for (_, owner), use in self.uses.items() if owner == repo_id), _NO_USE)

    def repositories(self) -> list[str]:
        """The repositories that hold something."""
        return sorted({owner for _, owner in self.uses if owner})

    def add(self, key: Key, folder: Path) -> DiskUse:
        """Measure one name and all below it."""
        used = _NO_USE
        try:
            info = folder.lstat()
            used = disk_use_of(info)
            if folder.is_dir() and not folder.is_symlink():
                for one in measure_disk_use(folder, one_device=True):
                    used += one
        except TooDeepError:
            self.incomplete.add(key)
        except OSError:
            return _NO_USE  # removed meanwhile
        self.uses[key] += used
        return used


def measure_home(home: Home) -> HomeUse:
    """Measure all of it. A large home takes seconds; what changes meanwhile may be counted or not."""
    found, top = HomeUse(), home.repositories
    repository_of = {task.id: task.repo_id for task in list_tasks(home)}
    measured: dict[str, Callable[[Path], None]] = {
        name: lambda folder, kind=kind: _measure_repositories(found, folder, kind)  # type: ignore[misc]  # bound now
        for name, kind in _OF_REPOSITORIES.items()
    }
    for name in ("worktrees", "layers"):
        measured[name] = lambda folder: _measure_worktrees(found, folder)
    measured["logs"] = lambda folder: _measure_logs(found, folder, repository_of)
    for path in _list(home.root):
        if path == top:
            continue
        if path.name == "releases":
            _measure_repositories(found, path, StorageKind.RELEASES)
        else:
            found.add((StorageKind.OTHER, ""), path)
    for path in _list(top):
        if path.name in measured:
            measured[path.name](path)
        else:
            found.add((_OF_THE_HOME.get(path.name, StorageKind.OTHER), ""), path)
    return found


def _measure_repositories(found: HomeUse, folder: Path, kind: StorageKind) -> None:
    for path in _list(folder):
        name = path.name
        if name.startswith("."):  # set aside, being made or being removed
            is_aside = kind is StorageKind.CLONES and ".corrupt-" in name
            found.add((StorageKind.QUARANTINE if is_aside else StorageKind.OTHER, ""), path)
        else:
            found.add((kind, name), path)


def _measure_worktrees(found: HomeUse, folder: Path) -> None:
    """Of worktrees or their layers: a folder for each task in one for each repository."""
    for repository in _list(folder):
        for path in _list(repository):
            if os.path.ismount(path):
                continue
            used = found.add((StorageKind.WORKTREES, repository.name.lstrip(".")), path)
            found.worktrees[path.name] += used


def _measure_logs(found: HomeUse, folder: Path, repository_of: Mapping[str, str]) -> None:
    for owner in _list(folder):
        repo_id = repository_of.get(owner.name, "" if owner.name.startswith("task-") else owner.name)
        for path in _list(owner):
            is_log = path.suffix in _LOG_SUFFIXES or path.suffix.startswith(".service-")
            used = found.add((StorageKind.LOGS if is_log else StorageKind.RUNS, repo_id), path)
            found.logs[owner.name] += used


def _list(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(folder.iterdir())
