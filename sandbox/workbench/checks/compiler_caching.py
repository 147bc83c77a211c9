"""Which clean rooms read the cache of compiled files, which fill it, and how it is taken out of a room.

Theory. A writer of a compiler's cache decides what others link. So only a room of the last commit of the remote's
default branch fills one, from scratch: it reads none. All other rooms get it read-only. An earlier commit fills none:
a merge brings commits that were never the branch's state, a revert leaves what it takes back in the history, and an
agent chooses which commit its task begins at. A repository never reads what another one filled, and the key of a
verdict that used a cache names the repository: else it would answer for the same tree in another one (S151). What the
guest left is data of a stranger: only files with the names that ccache gives are taken.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sandbox.checks.compiler_cache import FILL_FOLDER, NO_COMPILER_CACHE, CompilerCacheUse
from sandbox.errors import SandboxError, describe_briefly
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.git import objects, refs
from sandbox.git.process import Git
from sandbox.policy.paths import RepoPath, show_path
from sandbox.store.compiler_caches import CompilerCaches
from sandbox.store.records import find_repository
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services

CACHE_BYTES, CACHE_FILES, FILE_BYTES = 2 * 1024**3, 100_000, 256 * 1024**2
"""The most that is taken out of one room: the newest files of at most this size."""

_NAME = re.compile(rb"([0-9a-f]/){1,8}[0-9a-z]{20,60}[MR]")  # of manifests and results; seen in ccache 4.7 and 4.8
_log = logging.getLogger(__name__)


def find_filled_cache(services: Services, repo_id: str, image_digest: str) -> Path | None:
    """The cache that rooms of a repository read in this image."""
    return CompilerCaches(services.home, repo_id, image_digest).find()


def choose_use(services: Services, git: Git, built: tuple[str, str, str], image_digest: str) -> CompilerCacheUse:
    """What a room of a profile with a compiler cache does. `built`: repository, commit and tree of the room."""
    repo_id, commit, tree = built
    if is_default_head(services, git, built):
        return CompilerCacheUse(fills=True)
    filled = find_filled_cache(services, repo_id, image_digest)
    if filled is None:
        return NO_COMPILER_CACHE
    _log.debug("%s of %s reads a compiler cache", commit[:12], tree[:12])
    return CompilerCacheUse(filled, repo_id)


def is_default_head(services: Services, git: Git, built: tuple[str, str, str]) -> bool:
    """Whether this is exactly the tree of the last commit of the remote's default branch, as of the last fetch."""
    repo_id, commit, tree = built
    branch = find_repository(services.home, repo_id).default_branch
    return refs.resolve_ref(git, f"refs/remotes/origin/{branch}") == commit and objects.tree_of(git, commit) == tree


def keep_filled(services: Services, cache: tuple[str, str], tree: str, report: Path) -> None:
    """Take what the compilers of a check that passed have added, out of its report directory; its guest has ended.

    `cache`: repository and image. Without it only time is lost, so errors are logged.
    """
    try:
        with WorktreeFiles(report) as files:
            chosen = _choose(files)
            if chosen:
                _store(services, CompilerCaches(services.home, *cache), tree, (files, chosen))
    except (SandboxError, OSError) as error:
        _log.warning("what %s compiled is not kept for other rooms: %s", tree[:12], describe_briefly(error))


def _choose(files: WorktreeFiles) -> list[WalkEntry]:
    """The newest files that have names of ccache."""
    prefix = FILL_FOLDER.encode() + b"/"
    limits = WalkLimits(entries=2 * CACHE_FILES)
    walked = files.walk(lambda folder: not f"{folder.decode(errors='replace')}/".startswith(FILL_FOLDER), limits)
    found = [
        entry for entry in walked
        if entry.kind is EntryKind.FILE and entry.path.startswith(prefix) and entry.size <= FILE_BYTES
        and _NAME.fullmatch(entry.path[len(prefix) :])
    ]  # fmt: skip
    return list(_within_bounds(sorted(found, key=lambda entry: -entry.times_ns[0])))


def _within_bounds(newest_first: list[WalkEntry]) -> Iterator[WalkEntry]:
    left = CACHE_BYTES
    for entry in newest_first[:CACHE_FILES]:
        left -= entry.size
        if left < 0:
            return
        yield entry


def _store(
    services: Services, caches: CompilerCaches, tree: str, chosen: tuple[WorktreeFiles, list[WalkEntry]]
) -> None:
    files, entries = chosen
    demand = Demand(sum(entry.size for entry in entries), len(entries))
    with services.disk.admit(Writer.CHECK, demand), caches.replace(tree) as folder:
        for entry in entries:
            target = folder / show_path(entry.path).partition("/")[2]
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with closing(files.stream(RepoPath(show_path(entry.path)), FILE_BYTES)) as chunks:
                target.unlink(missing_ok=True)
                with target.open("xb") as file:
                    file.writelines(chunks)
            target.chmod(0o444)
        for parent in {path.parent for path in folder.rglob("*")}:
            parent.chmod(0o755)
