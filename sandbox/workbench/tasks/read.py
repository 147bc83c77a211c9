"""Use-cases that read a task's files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from sandbox.edits.hash_gate import Absence, no_such_file_error
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.line_range import LineRange, LineRangeContent, read_line_range
from sandbox.files.tree import NO_SUCH_FILE, READ_CAP, STREAM_CAP, UNREADABLE_REASONS
from sandbox.git.blobs import read_blobs, stream_blob
from sandbox.git.entries import SYMLINK
from sandbox.git.objects import find_blob, list_tree, tree_of
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.models import FileContent, Task
from sandbox.policy.paths import RepoPath, link_error, parse_repo_path, path_bytes, show_path
from sandbox.store.records import find_task
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.worktrees import is_without_files, locate_worktree, open_files

if TYPE_CHECKING:
    from sandbox.edits import near_paths
    from sandbox.git import cache_clones
    from sandbox.workbench.tasks import absent_files, tree_tasks
    from sandbox.workspaces import tree_files
else:  # loaded at first use (docs/adr/0080)
    absent_files = LazyModule("sandbox.workbench.tasks.absent_files")
    near_paths = LazyModule("sandbox.edits.near_paths")
    cache_clones = LazyModule("sandbox.git.cache_clones")
    tree_files = LazyModule("sandbox.workspaces.tree_files")
    tree_tasks = LazyModule("sandbox.workbench.tasks.tree_tasks")

_LINK_BYTES = 4096  # of a target; the kernel makes no longer link


def read_file(
    services: Services, task_id: str, path: str, start: int | None, end: int | None, max_bytes: int = READ_CAP
) -> FileContent:
    """A file, or lines `start` to `end` (1-based, inclusive) of a text file; at most `max_bytes` of content.

    Longer content is `truncated`: text after a whole line, if one fits. Raises: `quota_exceeded` for a file above
    `STREAM_CAP`, which is not hashed either; `invalid_input`, `unsafe_path`, `not_found`.
    """
    lines = _parse_range(start, end)
    _require_readable_size(max_bytes)
    task = find_task(services.home, task_id)
    checked = parse_repo_path(path)
    with (
        _explain_missing_file(services, task, checked),
        _open_chunks(services, task, checked) as chunks,
    ):
        window = read_line_range(chunks, lines, max_bytes)
    if lines != LineRange():
        _require_lines(checked, lines, window.total_lines)
    return _as_file_content(checked, window)


@contextmanager
def _open_chunks(services: Services, task: Task, path: RepoPath) -> Iterator[Iterator[bytes]]:
    """The content of a file, in the task's worktree, or of a task that has none yet in its tree."""
    site = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    if is_without_files(task, site):
        yield tree_files.TreeFiles(tree_tasks.open_working_tree(services, task)).stream(path, STREAM_CAP)
        return
    with open_files(services.home, services.policies, task) as files, closing(files.stream(path)) as chunks:
        yield chunks


def read_committed_file(
    services: Services, repo_id: str, ref: str, path: str, wanted: tuple[int | None, int | None], max_bytes: int
) -> FileContent:
    """As `read_file`, from a commit of the cache clone. `wanted`: first and last line."""
    lines = _parse_range(*wanted)
    _require_readable_size(max_bytes)
    checked = parse_repo_path(path)
    repository, git = services.repositories.open(repo_id)
    tree = tree_of(git, cache_clones.resolve_commit(git, ref, repository.default_branch))
    oid = find_blob(git, tree, path_bytes(checked))
    if oid is None:
        hint = f"To list paths: `sandbox file search {repository.id}@{ref} --glob 'src/*'`."
        raise _explain_no_file(git, tree, checked, hint)
    window = read_line_range(stream_blob(git, oid, limit=STREAM_CAP), lines, max_bytes)
    if lines != LineRange():
        _require_lines(checked, lines, window.total_lines)
    return _as_file_content(checked, window)


def _explain_no_file(git: Git, tree: str, path: RepoPath, hint: str) -> SandboxError:
    """The error for a path of a tree that is no regular file."""
    entries = {show_path(entry.path): entry for entry in list_tree(git, tree, sizes=False)}
    found = entries.get(path)
    if found is not None and found.mode == SYMLINK:
        (target,) = read_blobs(git, [found.oid], limit=_LINK_BYTES)
        return link_error(path, target).with_hint(hint)
    return no_such_file_error(path, Absence(near=near_paths.find_near_paths(path, set(entries))), hint)


@contextmanager
def _explain_missing_file(services: Services, task: Task, path: str) -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        hint = f"To list paths, search for a glob: `sandbox file search {task.id} --glob 'src/*'`."
        if error.code is ErrorCode.NOT_FOUND and error.reason == NO_SUCH_FILE:
            raise no_such_file_error(
                path, absent_files.explain_absence(services.home, services.repositories, task, path), hint
            ) from error
        if error.code is ErrorCode.UNSAFE_PATH and error.reason in UNREADABLE_REASONS:
            raise error.with_hint(hint) from error
        raise


def _require_readable_size(max_bytes: int) -> None:
    if not 1 <= max_bytes <= STREAM_CAP:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"max_bytes must be from 1 to {STREAM_CAP}")


def _parse_range(start: int | None, end: int | None) -> LineRange:
    lines = LineRange(1 if start is None else start, end)
    if lines.first < 1 or (end is not None and end < lines.first):
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "A line range must start at 1 or later, and not end before it starts"
        )
    return lines


def _require_lines(path: str, lines: LineRange, total: int | None) -> None:
    if total is None:
        hint = "Without a range its start is returned as base64. A check can read all of it."
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{path} is not UTF-8 text, so it has no line ranges", hint=hint)
    if lines.first > max(total, 1):
        hint = "Read a range that starts within these lines."
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{path} has only {total} lines", hint=hint)


def _as_file_content(path: str, window: LineRangeContent) -> FileContent:
    is_text = window.total_lines is not None
    return FileContent(
        path=path,
        sha256=window.sha256,
        size=window.size,
        content=window.content.decode("utf-8") if is_text else base64.b64encode(window.content).decode(),
        encoding="utf-8" if is_text else "base64",
        start_line=window.first,
        end_line=window.last,
        total_lines=window.total_lines,
        truncated=window.truncated,
    )
