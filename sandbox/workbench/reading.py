"""Use-cases that read a task's files."""

from __future__ import annotations

import base64

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.models import FileContent
from sandbox.policy.paths import check_path
from sandbox.store.records import find_task
from sandbox.workbench.parts import Parts


def read_file(parts: Parts, task_id: str, path: str, start: int | None, end: int | None) -> FileContent:
    """A whole file, or lines `start` to `end` (1-based, inclusive) of a text file."""
    task = find_task(parts.home, task_id)
    checked = check_path(path)
    with WorktreeFiles(parts.home.worktree(task.repo_id, task.id)) as files:
        content = files.read(checked)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return _binary(checked, content, ranged=start is not None or end is not None)
    lines = text.splitlines(keepends=True)
    first, last = _range(len(lines), start, end)
    return FileContent(
        path=checked,
        sha256=sha256_of(content),
        size=len(content),
        content="".join(lines[first - 1 : last]),
        encoding="utf-8",
        start_line=first,
        end_line=last,
        total_lines=len(lines),
        truncated=first > 1 or last < len(lines),
    )


def _range(total: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last = start or 1, end if end is not None else total
    if first < 1 or last < first - 1:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A line range starts at 1 and ends at or after its start")
    return first, min(last, total)


def _binary(path: str, content: bytes, *, ranged: bool) -> FileContent:
    if ranged:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{path} is not UTF-8 text, so it has no line ranges")
    return FileContent(
        path=path,
        sha256=sha256_of(content),
        size=len(content),
        content=base64.b64encode(content).decode(),
        encoding="base64",
        start_line=None,
        end_line=None,
        total_lines=None,
        truncated=False,
    )
