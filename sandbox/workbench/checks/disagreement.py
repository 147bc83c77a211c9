"""Explain why a check gives different verdicts in the task's worktree and in a clean room: files only in the worktree.

Reported only if the last run of the check in the task disagrees, on the committed files or on the current ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sandbox.errors import SandboxError
from sandbox.files.names import EntryKind
from sandbox.git import objects
from sandbox.git.scratch_trees import compute_tree_id
from sandbox.models import CheckRun, Task, Verdict
from sandbox.policy.paths import parent_folders, show_path
from sandbox.store.home import Home
from sandbox.store.runs import list_runs
from sandbox.text import neutralise
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.lifecycle import TaskComparison, compare_task

PATHS = 20
"""Maximum number of paths listed for each kind."""

NAME_LENGTH = 300

_RECENT = 40  # runs of the task that are read: each costs a file
_NO_DIFFERENCE = (
    "no file differs: the cause may be files in /tmp or the home of the task's container, time, order or chance"
)


def explain_disagreements(services: Services, task: Task, runs: Sequence[CheckRun]) -> tuple[str, ...]:
    """Lines for people: each check that disagrees, then the paths. Empty when no check disagrees.

    This is extra information and never fails: if the files cannot be compared, a line says so.
    """
    if all(run.cached and run.verdict is Verdict.PASSED for run in runs):
        return ()  # reported when the checks ran
    in_task = _find_last_runs(services.home, task)
    pairs = [(own, room) for room in runs if (own := in_task.get(room.check_id)) and _disagree(own, room)]
    if not pairs:
        return ()
    try:
        with compare_task(services, task) as opened:
            now = compute_tree_id(opened.git, task.head_commit, opened.changes.tree)
            sentences = [_sentence(own, room) for own, room in pairs if own.tree in {room.tree, now}]
            return (*sentences, *(list(_paths(opened)) or [_NO_DIFFERENCE])) if sentences else ()
    except SandboxError as error:
        return (*(_sentence(own, room) for own, room in pairs), f"the task's files cannot be compared: {error.brief}")


def _find_last_runs(home: Home, task: Task) -> dict[str, CheckRun]:
    """The last run of each whole check: a part of one is no evidence about the others."""
    oldest_first = reversed(list_runs(home, task.id, _RECENT))
    return {run.check_id: run for run in oldest_first if not run.clean_room and not run.arguments}


def _disagree(own: CheckRun, room: CheckRun) -> bool:
    """Whether one passed and the other did not. A run that was stopped does not count."""
    verdicts = {own.verdict, room.verdict}
    return len(verdicts) == 2 and Verdict.PASSED in verdicts and Verdict.KILLED not in verdicts


def _sentence(own: CheckRun, room: CheckRun) -> str:
    on = "the same tree" if own.tree == room.tree else f"tree {own.tree[:12]}"
    there = f"{own.verdict.value} in the task ({own.run_id}, on {on})"
    return f"{own.check_id}: {there}, {room.verdict.value} in the {room.place}"


def _paths(opened: TaskComparison) -> Iterator[str]:
    changed = [f"not committed: {_one_line(change.path)} ({change.kind.value})" for change in opened.changes.shown]
    yield from _limit_lines(changed, "not committed")
    yield from _limit_lines(
        [f"cannot be committed: {_one_line(path)}" for path in opened.changes.rejected], "cannot be committed"
    )
    yield from _limit_lines(_find_ignored(opened), "only in the task")


def _one_line(path: str) -> str:
    """Escape line breaks: a file name could use them to imitate our lines."""
    return neutralise(path)[:NAME_LENGTH].replace("\n", "\\n").replace("\t", "\\t")


def _limit_lines(lines: Sequence[str], kind: str) -> list[str]:
    more = len(lines) - PATHS
    return [*lines[:PATHS], *([f"{kind}: {more} more"] if more > 0 else [])]


def _find_ignored(opened: TaskComparison) -> list[str]:
    """Untracked files that no commit includes. A directory with only such files is one line."""
    tracked = {entry.path for entry in objects.list_tree(opened.git, opened.task.head_commit, sizes=False)}
    known = tracked | {change.path for change in opened.changes.tree}
    folders = parent_folders(known)
    counts: Counter[bytes] = Counter()
    for entry in opened.files.walk(lambda _: False):
        if entry.kind in {EntryKind.FILE, EntryKind.SYMLINK} and entry.path not in known and entry.path != b".git":
            counts[_topmost_own_folder(entry.path, folders)] += 1
    return [
        f"only in the task: {_one_line(show_path(path))} (ignored{f', {count} files' if path.endswith(b'/') else ''})"
        for path, count in sorted(counts.items())
    ]


def _topmost_own_folder(path: bytes, folders: set[bytes]) -> bytes:
    """The topmost directory of the path without any file of the repository, else the file."""
    end = 0
    while (end := path.find(b"/", end + 1)) > 0:
        if path[:end] not in folders:
            return path[: end + 1]
    return path
