"""What the state of a home takes on disk, what limits it, and what `gc` would free."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sandbox.models.ids import TaskId
from sandbox.models.leftovers import Leftover
from sandbox.models.model import Model, SparseModel
from sandbox.models.words import TaskStatus


class StorageKind(StrEnum):
    """What holds disk space."""

    CLONES = "clones"
    CHECKOUTS = "checkouts"  # pristine ones, below the worktrees
    WORKTREES = "worktrees"  # what tasks changed, and their disks
    SNAPSHOTS = "snapshots"  # objects of a clone that only snapshots and rescued work lead to
    LFS = "lfs"
    COMPILER_CACHES = "compiler caches"
    LAYERS = "layers"
    CANDIDATES = "candidates"
    RELEASES = "releases"
    RUNS = "runs"  # records
    LOGS = "logs"
    ARTIFACTS = "artifacts"
    VERDICTS = "verdicts"
    JOURNALS = "journals"
    QUARANTINE = "quarantine"  # clones that a repair set aside
    ROOMS = "clean rooms"
    WORKSPACES = "workspaces"
    OTHER = "other"
    IMAGES = "images"  # of the engine, on its disk


class StorageUse(SparseModel):
    """What one kind of state of one repository, or of the home, holds. Bytes are allocated blocks.

    `limit_bytes`, `limit`: what it may hold and the setting that says so, or another limit in words. `removal`: when it
    is removed. `is_complete`: false where directories are nested too deep to be measured.
    """

    kind: StorageKind
    repo_id: str | None = None
    bytes: int
    files: int
    limit_bytes: int | None = None
    limit: str = ""
    removal: str = ""
    is_complete: bool = True


class RepositoryStorage(SparseModel):
    """What a repository holds, and its limit, None for none."""

    repo_id: str
    bytes: int
    files: int
    max_bytes: int | None = None


class TaskStorage(SparseModel):
    """What a task holds. `disk_bytes`: the size of its own disk, which limits its files; None without one."""

    task_id: TaskId
    repo_id: str
    status: TaskStatus
    worktree_bytes: int
    disk_bytes: int | None = None
    log_bytes: int


class Storage(SparseModel):
    """The answer of `sandbox storage`.

    `max_bytes`: `storage.max_bytes`; None: no limit. `uses`: all that the home holds, and images, which are not in
    `bytes`; the largest first. `tasks`: those that hold most. `reclaimable`: what `gc` would do now, with the bytes
    that this frees and why it may. `only_here_bytes`: what no limit removes, because it exists only here.
    `images_note`: why the images are unknown.
    """

    measured_at: datetime
    bytes: int
    files: int
    max_bytes: int | None = None
    only_here_bytes: int
    free_bytes: int
    free_files: int | None = None
    min_free_bytes: int
    min_free_files: int
    uses: tuple[StorageUse, ...]
    repositories: tuple[RepositoryStorage, ...]
    tasks: tuple[TaskStorage, ...]
    reclaimable: tuple[Leftover, ...]
    images_note: str = ""


class MeasuredStorage(Model):
    """What a home held when it was measured last; new large writers are admitted by it. `at`: seconds, Unix time.

    `bytes`: allocated blocks of all of it; `repositories`: of each repository that holds something, by id.
    """

    at: float
    bytes: int
    repositories: dict[str, int]
