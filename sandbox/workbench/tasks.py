"""Use-cases on tasks: create, read, edit, status, diff, commit, push, close."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.git import objects
from sandbox.git.cache import resolve_commit
from sandbox.git.process import Git
from sandbox.git.transport import push as push_commit
from sandbox.models import (
    ChangeKind,
    CommitResult,
    Diff,
    DiffFile,
    FileContent,
    PatchResult,
    PushResult,
    Status,
    Task,
    TaskStatus,
    WorkspaceKind,
)
from sandbox.policy.paths import check_path, show_path
from sandbox.store.home import GIT_MASK
from sandbox.store.records import find_task, save_task
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import cache_of, profile_at
from sandbox.workspaces.patch import apply_patch, publish
from sandbox.workspaces.worktree import Changes, base_ignore_rules, find_changes, lay_out

EDIT_WAIT_S = 10.0
"""How long an edit waits for another operation on the same task; a running check is longer, so it is a conflict."""

DIFF_BYTES = 1024 * 1024
MESSAGE_BYTES = 64 * 1024


@dataclass(frozen=True)
class OpenTask:
    """A task with what its operations need. `changes` are against the task's head."""

    task: Task
    git: Git
    files: WorktreeFiles
    changes: Changes


def create(parts: Parts, repo_id: str, prompt: str, base: str | None) -> Task:
    """A new task on its own branch with its own worktree. On failure neither is left."""
    repository, git = cache_of(parts, repo_id)
    base_branch = base or repository.default_branch
    commit = resolve_commit(git, base_branch, repository.default_branch)
    task_id = f"task-{uuid.uuid4()}"
    task = Task(
        id=task_id,
        repo_id=repo_id,
        prompt=prompt,
        base_branch=base_branch,
        branch=f"space-agent/{task_id}-{_slug(prompt)}",
        base_commit=commit,
        workspace_kind=WorkspaceKind.WORKTREE,
        worktree_path=parts.home.worktree(repo_id, task_id),
        status=TaskStatus.WORKING,
        head_commit=commit,
        created_at=datetime.now(UTC),
    )
    root = parts.home.worktree(repo_id, task_id)
    root.parent.mkdir(mode=0o700, exist_ok=True)
    objects.move_ref(git, f"refs/heads/{task.branch}", commit, "0" * len(commit))
    try:
        lay_out(git, objects.tree_of(git, commit), root, parts.file_owner, GIT_MASK)
        return save_task(parts.home, task)
    except BaseException:
        remove_tree(root)
        git.run("update-ref", "-d", f"refs/heads/{task.branch}", commit)
        raise


def _slug(prompt: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", prompt.lower().encode("ascii", "ignore").decode()).strip("-")
    return words[:40].strip("-") or "work"


@contextmanager
def editing(parts: Parts, task_id: str, wait_s: float = EDIT_WAIT_S) -> Iterator[Task]:
    """Hold the task: nothing else runs in it or edits it. Raises: `conflict` when something does for longer."""
    find_task(parts.home, task_id)
    with parts.home.locked(task_id, timeout_s=wait_s):
        yield find_task(parts.home, task_id)


@contextmanager
def looking(parts: Parts, task: Task) -> Iterator[OpenTask]:
    """The task's files compared with its head; safe while something runs in the task."""
    _, git = cache_of(parts, task.repo_id)
    head = objects.list_tree(git, objects.tree_of(git, task.head_commit))
    base = head
    if task.base_commit != task.head_commit:
        base = objects.list_tree(git, objects.tree_of(git, task.base_commit))
    rules = base_ignore_rules(git, base, profile_at(parts, git, base).artifacts)
    with WorktreeFiles(parts.home.worktree(task.repo_id, task.id)) as files:
        yield OpenTask(task, git, files, find_changes(files, {e.path: e for e in head}, rules))


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


def patch(parts: Parts, task_id: str, text: bytes, expected: Mapping[str, str | None]) -> PatchResult:
    """Apply a hash-gated patch, all files or none. Raises: see `workspaces.patch`."""
    with editing(parts, task_id) as task:
        _, git = cache_of(parts, task.repo_id)
        with WorktreeFiles(parts.home.worktree(task.repo_id, task.id)) as files:
            return publish(files, apply_patch(git, files, text, expected), parts.file_owner)


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


def push(parts: Parts, task_id: str) -> PushResult:
    """Send the task's commit to its branch on the remote and verify it arrived."""
    with editing(parts, task_id) as task:
        repository, git = cache_of(parts, task.repo_id)
        if task.head_commit == task.base_commit:
            raise SandboxError(ErrorCode.NOTHING_TO_COMMIT, "The task has no commit to push", hint="Commit first.")
        if parts.settings.gate.require == "push":
            raise SandboxError(
                ErrorCode.GATE_CLOSED,
                f"The gate wants tree {objects.tree_of(git, task.head_commit)[:12]} verified before a push",
                hint="This version keeps no verification records yet; gate.require = 'pr-ready' allows the push.",
            )
        marker = f"refs/sandbox/{task.id}/pushed"
        before = objects.resolve_ref(git, marker)
        remote = parts.remote(repository.remote_url)
        parts.authenticated(remote, lambda access: push_commit(git, access, task.head_commit, task.branch, before))
        objects.move_ref(git, marker, task.head_commit, before or "0" * len(task.head_commit))
        update: dict[str, object] = {"pushed_at": datetime.now(UTC)}
        if task.status in {TaskStatus.WORKING, TaskStatus.COMMITTED}:
            update["status"] = TaskStatus.PUSHED
        save_task(parts.home, task.model_copy(update=update))
        return PushResult(branch=task.branch, commit=task.head_commit, forced=_forced(git, before, task.head_commit))


def _forced(git: Git, before: str | None, after: str) -> bool:
    return before is not None and git.attempt("merge-base", "--is-ancestor", before, after).code != 0


def close(parts: Parts, task_id: str, *, delete: bool, discard: bool) -> Task:
    """End a task; with `delete` its worktree goes too, when clean or with `discard`. Remote branch and PR are kept."""
    task = find_task(parts.home, task_id, allow_closed=True)
    with parts.home.locked(task_id, timeout_s=EDIT_WAIT_S):
        task = find_task(parts.home, task_id, allow_closed=True)
        root = parts.home.worktree(task.repo_id, task.id)
        if delete and root.exists():
            if not discard:
                _require_clean(parts, task)
            remove_tree(root)
        closed = {"status": TaskStatus.CLOSED, "closed_at": task.closed_at or datetime.now(UTC)}
        if not root.exists():
            closed["worktree_path"] = None
        return save_task(parts.home, task.model_copy(update=closed))


def _require_clean(parts: Parts, task: Task) -> None:
    with looking(parts, task) as opened:
        if opened.changes.tree:
            raise SandboxError(
                ErrorCode.DIRTY_WORKSPACE,
                f"{task.id} has uncommitted changes",
                details=", ".join(c.path for c in opened.changes.shown[:10]),
                hint="Commit them, or repeat with --discard to lose them.",
            )
