"""What the paths under `without` of a clean contain: an approved clean deletes what was there when it was asked about.

Theory. Such paths are named because they are too large to be kept or even listed, so the digest is bounded: 64 MiB of
contents, and of further files size and times. The kernel moves ctime at every change, and no guest can set it; a store
through an old mapping of a file past the first 64 MiB may be missed (`sandbox.files.stamps`). Of more names than the
limit only that they are too many is known. Of what no commit can hold, as a nested `.git`, only the name is known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sandbox.errors import SandboxError
from sandbox.files.names import EntryKind, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.models import Task
from sandbox.policy.paths import RepoPath, parse_repo_path, path_bytes
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks import tree_tasks
from sandbox.workbench.tasks.approved_state import describe_record, join_state, require_approved_state
from sandbox.workbench.tasks.worktrees import ensure_site_mounted, has_worktree, is_without_files, locate_worktree

CONTENT_BYTES = 64 * 1024**2
"""Of all files together, about 0.2 s. Reached: of further files size and times."""
LIMITS = WalkLimits(entries=100_000, name_bytes=16 * 1024**2)
"""Of all paths together, about 60 MB of memory. Reached: that they are too many."""

_CHUNK = 1 << 20


def find_clean_state(services: Services, task: Task, without: Sequence[str]) -> str:
    """The state that an approval of a clean is bound to: the last commit; with `without` a digest of what these paths
    contain; what the question shows of the task's record. Raises: `unsafe_path`.
    """
    content = _find_content(services, task, without) if without else ""
    return join_state(task.head_commit, describe_record(services.home, task), content)


def _find_content(services: Services, task: Task, without: Sequence[str]) -> str:
    named = {parse_repo_path(path.rstrip("/")) for path in without}
    paths = sorted(path for path in named if not any(path.startswith(f"{other}/") for other in named))
    return _compute_digest(services, task, paths)


def require_approved_clean(services: Services, task: Task, without: Sequence[str], approved: str | None) -> None:
    """`approved`: the result of `find_clean_state` then, without the record that of an earlier version, or a commit
    alone; None: any. Raises: `conflict`.
    """
    require_approved_state(
        "commit",
        task.head_commit,
        approved,
        lambda _: describe_record(services.home, task),
        lambda: _find_content(services, task, without),
    )


def _compute_digest(services: Services, task: Task, paths: Sequence[RepoPath]) -> str:
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if is_without_files(task, site):
        _, git = services.repositories.open(task.repo_id)
        return f"tree:{tree_tasks.find_working_tree(git, task)}"
    if not has_worktree(site):
        return "no-worktree"
    with WorktreeFiles(ensure_site_mounted(services.home, task, site)) as files:
        return digest_paths(files, paths)


def digest_paths(files: WorktreeFiles, paths: Sequence[RepoPath]) -> str:
    """SHA-256 over everything at and below these paths, within the limits above."""
    digest, left, names = hashlib.sha256(), CONTENT_BYTES, LIMITS.entries
    for path in paths:
        for name, kind in _list_names(files, path, names):
            names -= 1
            content, size = _describe_content(files, name, kind, left)
            left -= size
            digest.update(repr((name, kind, content)).encode())
    return f"sha256:{digest.hexdigest()}"


def _list_names(files: WorktreeFiles, path: RepoPath, most: int) -> Iterator[tuple[bytes, str]]:
    raw = path_bytes(path)
    try:
        kind = files.kind(path)
        yield raw, kind or "none"
        if kind is EntryKind.DIRECTORY:
            limits = replace(LIMITS, entries=max(0, most))
            yield from ((entry.path, entry.kind) for entry in files.walk(lambda _: False, limits, start=raw))
    except SandboxError as error:  # too many names, or a link on the way
        yield raw, error.code


def _describe_content(files: WorktreeFiles, path: bytes, kind: str, left: int) -> tuple[object, int]:
    """What is known of the content, and the bytes that were read for it."""
    try:
        if kind == EntryKind.SYMLINK:
            return files.read_link(path), 0
        if kind == EntryKind.FILE:
            with files.open_regular(path) as (fd, info):
                if info.st_size > left:
                    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns), 0
                return _hash_start(fd, info.st_size), info.st_size
    except SandboxError as error:  # it changed meanwhile, or is a hard link of a file from outside
        return error.code, 0
    return None, 0


def _hash_start(fd: int, size: int) -> str:
    digest = hashlib.sha256()
    while size and (chunk := os.read(fd, min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()
