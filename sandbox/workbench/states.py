"""Use-cases on the states of a task: what changed, and commits."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git import objects
from sandbox.git.process import Git
from sandbox.models import ChangeKind, CommitResult, Diff, DiffFile, Status, TaskStatus
from sandbox.policy.paths import show_path
from sandbox.store.records import find_task, save_task
from sandbox.workbench.parts import Parts
from sandbox.workbench.tasks import editing, looking

DIFF_BYTES = 1024 * 1024
MESSAGE_BYTES = 64 * 1024


def status(parts: Parts, task_id: str) -> Status:
    """Branch, commits and uncommitted changes."""
    task = find_task(parts.home, task_id, allow_closed=True)
    with looking(parts, task) as opened:
        return Status(
            branch=task.branch,
            head_commit=task.head_commit,
            base_commit=task.base_commit,
            ahead=objects.count_commits(opened.git, task.base_commit, task.head_commit),
            dirty=bool(opened.changes.tree),
            changes=opened.changes.shown,
            rejected=opened.changes.rejected,
        )


def diff(parts: Parts, task_id: str, against: str) -> Diff:
    """Unified diff of the working state against the task's `base` or `head` commit."""
    if against not in {"base", "head"}:
        raise SandboxError(ErrorCode.INVALID_INPUT, "A diff is against 'base' or 'head'")
    task = find_task(parts.home, task_id, allow_closed=True)
    with looking(parts, task) as opened:
        git = opened.git
        after = objects.build_tree(git, task.head_commit, opened.changes.tree)
    before = objects.tree_of(git, task.base_commit if against == "base" else task.head_commit)
    raw = objects.diff_text(git, before, after)
    return Diff(
        text=raw[:DIFF_BYTES].decode("utf-8", errors="replace"),
        files=_diff_files(git, before, after),
        truncated=len(raw) > DIFF_BYTES,
    )


def _diff_files(git: Git, before: str, after: str) -> tuple[DiffFile, ...]:
    counts = objects.diff_counts(git, before, after)
    changes = objects.diff_trees(git, before, after)
    hashes = _hashes(git, changes)
    return tuple(
        DiffFile(
            path=show_path(c.path),
            kind=_change_kind(c),
            additions=counts.get(c.path, (None, None))[0],
            deletions=counts.get(c.path, (None, None))[1],
            sha256=hashes.get(c.path),
        )
        for c in changes
    )


def _hashes(git: Git, changes: list[objects.RawChange]) -> dict[bytes, str]:
    present = [(c.path, c.new_oid) for c in changes if c.new_oid and c.new_mode != objects.GITLINK]
    contents = objects.read_blobs(git, [oid for _, oid in present])
    return {path: sha256_of(content) for (path, _), content in zip(present, contents, strict=True)}


def _change_kind(change: objects.RawChange) -> ChangeKind:
    kinds = {"A": ChangeKind.ADDED, "D": ChangeKind.DELETED, "T": ChangeKind.TYPE_CHANGED}
    return kinds.get(change.status, ChangeKind.MODIFIED)


def commit(parts: Parts, task_id: str, message: str) -> CommitResult:
    """Commit the whole working state on the task's branch. Raises: `nothing_to_commit`, `invalid_input`."""
    cleaned = _message(message)
    with editing(parts, task_id) as task, looking(parts, task) as opened:
        if not opened.changes.tree:
            raise SandboxError(
                ErrorCode.NOTHING_TO_COMMIT, "The worktree has no changes", hint="Edit a file first; see `status`."
            )
        git = opened.git
        tree = objects.build_tree(git, task.head_commit, opened.changes.tree)
        now = datetime.now(UTC)
        oid = objects.commit_tree(git, tree, task.head_commit, cleaned, _identity(parts, now))
        objects.move_ref(git, f"refs/heads/{task.branch}", oid, task.head_commit)
        update = {"head_commit": oid, "committed_at": now}
        if task.status is TaskStatus.WORKING:
            update["status"] = TaskStatus.COMMITTED
        save_task(parts.home, task.model_copy(update=update))
        return CommitResult(commit=oid, tree=tree, files=opened.changes.shown)


def _message(message: str) -> str:
    """A message without control characters. Raises: `invalid_input` for an empty or oversized one."""
    text = "".join(c for c in message.replace("\r\n", "\n") if c in "\n\t" or c.isprintable()).strip()
    if not text or len(text.encode()) > MESSAGE_BYTES:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A commit message has 1 to {MESSAGE_BYTES} bytes of text")
    return text + "\n"


def _identity(parts: Parts, when: datetime) -> dict[str, str]:
    author = parts.settings.author
    date = f"{int(when.timestamp())} +0000"
    clean = {k: re.sub(r"[<>\x00-\x1f\x7f]", "", v).strip() or "sandbox" for k, v in author.model_dump().items()}
    return {
        f"GIT_{who}_{field}": value
        for who in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", clean["name"]), ("EMAIL", clean["email"]), ("DATE", date))
    }
