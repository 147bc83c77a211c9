"""What `gc` removes of finished work (`keep.*` in the settings): old runs, logs, verdicts, closed tasks.

Work that exists only here is kept: an open task, a commit that was never pushed, a snapshot of files that were never
committed, an uncommitted change. Journals are a chain, so they are named when they are large, and never cut. A whole
journal goes long after its task was forgotten, once the home's journal has its last digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.git.process import Git
from sandbox.models import Task, TaskStatus
from sandbox.store import artifact_store, bindings, journal, result_files, usage_files
from sandbox.store.home import Home, newest_files, sync_folder
from sandbox.store.journal_chain import ChainHead
from sandbox.store.lockfile import remove_abandoned
from sandbox.store.operation_answers import forget_answers
from sandbox.store.records import find_task, list_repositories, list_tasks
from sandbox.store.runs import LAUNCH_FILE
from sandbox.store.verdicts import remove_unchanged
from sandbox.workbench.controller import journal_anchors
from sandbox.workbench.controller.audit import verify_journals
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import NOTE_LENGTH, Finding, Reconciler, find_matching
from sandbox.workbench.tasks.only_copies import OnlyCopy, find_only_copies, list_request_heads
from sandbox.workbench.tasks.task_refs import delete_refs, list_refs
from sandbox.workbench.tasks.worktrees import has_worktree, locate_worktree

DAY_S = 86_400
_BESIDE_RUNS = {
    ".stdout", ".stderr", result_files.SUFFIX, usage_files.SUFFIX, bindings.SUFFIX, artifact_store.SUFFIX,
}  # fmt: skip


def list_logs(records: Sequence[Path]) -> list[Path]:
    """The logs of these runs of one folder, in their order: of both streams, of services, test results, and files of
    launches.
    """
    found: dict[str, list[Path]] = {record.stem: [] for record in records}
    for path in sorted(records[0].parent.iterdir()) if records else ():
        launched = path.name.removeprefix(LAUNCH_FILE).partition(".")[0] if path.name.startswith(LAUNCH_FILE) else ""
        if launched in found:
            found[launched].append(path)
        elif path.stem in found and (path.suffix in _BESIDE_RUNS or path.suffix.startswith(".service-")):
            found[path.stem].append(path)
    return [log for logs in found.values() for log in logs]


def is_output(path: Path) -> bool:
    """Whether a file of a folder of logs holds what a guest wrote."""
    is_stream = path.suffix in {".stdout", ".stderr"} or path.suffix.startswith(".service-")
    return is_stream or path.name.startswith(LAUNCH_FILE)


def find_old_runs(reconciler: Reconciler) -> Iterator[Finding]:
    """Records and logs of the oldest runs of each task and repository, beyond `keep.runs`."""
    services = reconciler.services
    limit = services.settings.keep.runs
    for folder in sorted(services.home.all_logs()) if limit else ():
        old = newest_files(folder)[limit:]
        if old:
            note = f"{len(old)} runs older than the newest {limit}"
            size = sum(map(size_of, [*list_logs(old), *old]))
            yield Finding("runs", folder.name, partial(_remove_runs, old), note=note, bytes=size)


def _remove_runs(records: Sequence[Path]) -> str:
    """The record last: a log without a record is never removed."""
    unlink_all([*list_logs(records), *records])
    return ""


def find_large_logs(reconciler: Reconciler) -> Iterator[Finding]:
    """The oldest output of each task and repository, beyond `keep.logs_bytes` together. The records of the runs are
    kept, and what is theirs but no output: test results, what receipts need, lists of artifacts.
    """
    services = reconciler.services
    limit = services.settings.keep.logs_bytes
    for folder in sorted(services.home.all_logs()) if limit else ():
        logs = filter(is_output, list_logs(newest_files(folder)))
        total, old, freed = 0, [], 0
        for log in logs:
            size = size_of(log)
            total += size
            if size and total > limit:
                old.append(log)
                freed += size
        if old:
            note = f"{len(old)} logs beyond the newest {format_bytes(limit)}; the records of their runs are kept"
            yield Finding("logs", folder.name, partial(unlink_all, old), note=note, bytes=freed)


def find_old_verdicts(reconciler: Reconciler) -> Iterator[Finding]:
    """The oldest cached verdicts beyond `keep.verdicts`."""
    services = reconciler.services
    limit = services.settings.keep.verdicts
    stored = find_matching(services.home.verdict("any").parent, "[0-9a-f]*.json")
    if limit and len(stored) > limit:
        written = {path: written_at(path) for path in stored}
        old = sorted(stored, key=written.__getitem__, reverse=True)[limit:]
        listed = {path: written[path] for path in old}
        note = f"older than the newest {limit}; their checks run again when they are asked for"
        size, name = sum(map(size_of, old)), f"{len(old)} of {len(stored)}"
        remedy = partial(remove_unchanged, services.home, listed)
        yield Finding("verdicts", name, remedy, note=note, bytes=size)


def find_old_artifacts(reconciler: Reconciler) -> Iterator[Finding]:
    """Lists of artifacts older than `keep.artifacts_days`, then contents that no list names; none of them as long as
    there is a list that cannot be read.
    """
    home, days = reconciler.services.home, reconciler.services.settings.keep.artifacts_days
    for folder in sorted(home.all_logs()) if days else ():
        old = artifact_store.find_old_lists(folder, days)
        if old:
            note = f"artifacts of {len(old)} runs older than {days:g} days"
            yield Finding("artifacts", folder.name, partial(unlink_all, old), note=note)
    try:
        unused = artifact_store.find_unused(home)
    except SandboxError as error:
        note = f"kept while a list of artifacts cannot be read, which may name them: {error.details}"
        yield Finding("artifacts", "contents", note=note[:NOTE_LENGTH])
        return
    if unused:
        size = sum(map(size_of, unused))
        note = f"{format_bytes(size)}; no run names them"
        yield Finding("artifacts", f"{len(unused)} files", partial(_remove_contents, unused), note=note, bytes=size)


def _remove_contents(unused: Sequence[Path]) -> str:
    """A remedy."""
    artifact_store.remove_unused(unused)
    return ""


def unlink_all(paths: Sequence[Path]) -> str:
    """A remedy: remove these files, those that are there."""
    for path in paths:
        path.unlink(missing_ok=True)
    return ""


def find_large_journals(reconciler: Reconciler) -> Iterator[Finding]:
    """Journals over `keep.journal_bytes`. They are only named: a shorter one could not be verified."""
    home, limit = reconciler.services.home, reconciler.services.settings.keep.journal_bytes
    for path in find_matching(home.journal("any").parent, "*.jsonl") if limit else ():
        size = size_of(path)
        if size > limit:
            yield Finding("journal", path.stem, note=f"it has {format_bytes(size)}; a journal is never cut")


def find_old_journals(reconciler: Reconciler) -> Iterator[Finding]:
    """Journals without a task, last written before `keep.journals_days`. A damaged one is evidence: it is kept."""
    home, days = reconciler.services.home, reconciler.services.settings.keep.journals_days
    names = [
        path.stem
        for path in (find_matching(home.journal("any").parent, "task-*.jsonl") if days else ())
        if age_s(path) > days * DAY_S and not home.task(path.stem).exists()
    ]
    of_home, *states = verify_journals(home, names).journals if names else (None,)
    for state in states:
        broken = state.broken or (of_home and of_home.broken)
        if broken or state.head is None or state.unchained:
            why = broken.details if broken else "its entries are from before journals were chained"
            yield Finding("old journal", state.name, note=f"kept: {why}")
            continue
        head = ChainHead(state.seq, state.head)
        note = f"its task was forgotten; the home's journal has the digest of its {state.seq} entries"
        remedy = partial(_remove_journal, reconciler.services, state.name, head)
        size = size_of(home.journal(state.name))
        yield Finding("old journal", state.name, remedy, locks=(state.name,), note=note, bytes=size)


def _remove_journal(services: Services, name: str, head: ChainHead) -> str | None:
    """Note the head first: a kill in between leaves a journal that is as it was noted, and the next `gc` continues."""
    home, path = services.home, services.home.journal(name)
    if home.task(name).exists() or not path.exists() or journal.read_head(home, name) != head:
        return None
    journal_anchors.append_removal(home, services.surface, name, head)
    path.unlink()
    sync_folder(path.parent)
    return ""


def find_old_tasks(reconciler: Reconciler) -> Iterator[Finding]:
    """Closed tasks older than `keep.closed_tasks_days`: record, runs, branch and snapshots, unless some work exists
    only here. Their journals are kept for longer (`find_old_journals`).
    """
    services = reconciler.services
    days = services.settings.keep.closed_tasks_days
    before = datetime.now(UTC) - timedelta(days=days)
    old = [task for task in list_tasks(services.home) if days and _is_over(task, before)]
    kept = {repo_id: _list_only_copies(services, repo_id) for repo_id in {task.repo_id for task in old}}
    for task in old:
        if not _has_work(services, task, kept[task.repo_id]):
            note = f"closed before {before:%Y-%m-%d}; its journal is kept"
            remedy = partial(_forget_task, services, task.id, before)
            yield Finding("closed task", task.id, remedy, locks=(task.id,), note=note)


def _is_over(task: Task, before: datetime) -> bool:
    return task.status is TaskStatus.CLOSED and task.closed_at is not None and task.closed_at < before


def _list_only_copies(services: Services, repo_id: str) -> tuple[OnlyCopy, ...] | None:
    """Work in the clone that exists only here; None if that is unknown: the clone is damaged, or is missing although
    its repository was not removed.
    """
    git = _git_of(services, repo_id)
    try:
        is_registered = any(repository.id == repo_id for repository in list_repositories(services.home))
        if is_registered and not (git.git_dir / "HEAD").is_file():
            return None
        return tuple(find_only_copies(git, list_request_heads(list_tasks(services.home, repo_id))))
    except SandboxError:
        return None


def _has_work(services: Services, task: Task, in_clone: tuple[OnlyCopy, ...] | None) -> bool:
    """Whether work of this task exists only here. A worktree may hold uncommitted changes: closed without --delete."""
    worktree = locate_worktree(services.home, services.policies, task.repo_id, task.id)
    return in_clone is None or any(copy.is_of(task.id) for copy in in_clone) or has_worktree(worktree)


def _git_of(services: Services, repo_id: str) -> Git:
    return Git(services.home.clone(repo_id), services.settings.git.executable)


def _forget_task(services: Services, task_id: str, before: datetime) -> str | None:
    """Delete the refs first and the record last: a kill in between leaves a record, and the next `gc` continues."""
    home = services.home
    try:
        task = find_task(home, task_id, allow_closed=True)
    except SandboxError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
    if not _is_over(task, before) or _has_work(services, task, _list_only_copies(services, task.repo_id)):
        return None
    git = _git_of(services, task.repo_id)
    if (git.git_dir / "HEAD").is_file():
        delete_refs(git, list_refs(git, task))
    if home.logs(task_id).exists():
        remove_tree(home.logs(task_id))
    forget_answers(home, task_id)
    home.task(task_id).unlink(missing_ok=True)
    _forget_mount_lock(home, task_id)
    return ""


def _forget_mount_lock(home: Home, task_id: str) -> None:
    with suppress(OSError):
        remove_abandoned(home.lock_path(f"mount-{task_id}"))


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def written_at(path: Path) -> float:
    """When a file or directory last changed, as stat(2) gives it; now if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def age_s(path: Path) -> float:
    """Seconds since a file was written; about 0 if it is gone."""
    return time.time() - written_at(path)
