"""The registered repositories: open one with git on its cache clone."""

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
    from sandbox.models import Repository
    from sandbox.store import records
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    cache_clones = LazyModule("sandbox.git.cache_clones")
    object_cache = LazyModule("sandbox.git.object_cache")
    records = LazyModule("sandbox.store.records")


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

    def get_object_cache(self, clone: Path) -> ObjectCache:
        """The object cache of a cache clone, a new one if the clone was replaced. Raises: OSError without a clone."""
        folder, head = clone.stat(), (clone / "HEAD").stat()
        same = (folder.st_dev, folder.st_ino, head.st_ino, head.st_ctime_ns)
        with self._lock:
            before = self._caches.get(clone)
            if before is None or before[0] != same:
                before = self._caches[clone] = (same, object_cache.ObjectCache())
            return before[1]
