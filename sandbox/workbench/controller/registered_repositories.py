"""The registered repositories: open one with git on its cache clone, find the commit that is meant by an id."""

from __future__ import annotations

import threading
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.store.home import Home

if TYPE_CHECKING:
    from sandbox.git import cache_clones, object_cache
    from sandbox.git.object_cache import ObjectCache
    from sandbox.git.process import Git
    from sandbox.models import Repository, Task
    from sandbox.store import records
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    cache_clones = LazyModule("sandbox.git.cache_clones")
    object_cache = LazyModule("sandbox.git.object_cache")
    records = LazyModule("sandbox.store.records")


@dataclass(frozen=True)
class OwnerCommit:
    """The last commit of a task; without a task, that of the repository's default branch."""

    repository: Repository
    git: Git
    commit: str
    task: Task | None = None

    @property
    def owner_id(self) -> str:
        return self.task.id if self.task else self.repository.id

    @property
    def base_commit(self) -> str:
        """What a task's profile is read from; of a repository the commit itself."""
        return self.task.base_commit if self.task else self.commit


@dataclass(frozen=True)
class RegisteredRepositories:
    """Opens repositories of a home; all users of a clone share its object cache. `executable`: see `GitSettings`."""

    home: Home
    executable: str
    _caches: dict[Path, tuple[tuple[int, ...], ObjectCache]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, repo_id: str) -> tuple[Repository, Git]:
        """A registered repository and git on its cache clone. Raises: `not_found`."""
        repository = records.find_repository(self.home, repo_id)
        git = cache_clones.open_cache(self.home.clone(repo_id), self.executable)
        return repository, replace(git, cache=self.get_object_cache(git.git_dir))

    def find_owner_commit(self, owner_id: str, *, allow_closed: bool = False) -> OwnerCommit:
        """Of a task or of a repository. Raises: as `open`; `conflict` for a closed task unless allowed."""
        if owner_id.startswith("task-"):
            task = records.find_task(self.home, owner_id, allow_closed=allow_closed)
            return OwnerCommit(*self.open(task.repo_id), task.head_commit, task)
        repository, git = self.open(owner_id)
        return OwnerCommit(repository, git, cache_clones.resolve_commit(git, "HEAD", repository.default_branch))

    def get_object_cache(self, clone: Path) -> ObjectCache:
        """The object cache of a cache clone, a new one if the clone was replaced. Raises: OSError without a clone."""
        folder, head = clone.stat(), (clone / "HEAD").stat()
        same = (folder.st_dev, folder.st_ino, head.st_ino, head.st_ctime_ns)
        with self._lock:
            before = self._caches.get(clone)
            if before is None or before[0] != same:
                before = self._caches[clone] = (same, object_cache.ObjectCache())
            return before[1]
