"""Use-case: what is known of the checks of a repository's last commits. Runs no check, and asks no engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import cache_clones, objects
from sandbox.git.log import list_first_parents
from sandbox.git.process import Git
from sandbox.models import CheckRun, CommitVerdicts, HistoryRun, RepositoryHistory, Verdict
from sandbox.store.bindings import is_evidence
from sandbox.store.home import Home
from sandbox.store.records import list_tasks
from sandbox.store.runs import list_runs
from sandbox.text import one_line
from sandbox.workbench.controller.services import Services

MOST_COMMITS = 200
_MOST_RUNS = 500  # of the repository and of each task, the newest


def read_history(services: Services, repo_id: str, ref: str, limit: int) -> RepositoryHistory:
    """The last `limit` commits along first parents. Raises: `not_found`; `invalid_input`."""
    if not 1 <= limit <= MOST_COMMITS:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A history has 1 to {MOST_COMMITS} commits")
    repository, git = services.repositories.open(repo_id)
    head = cache_clones.resolve_commit(git, ref, repository.default_branch)
    runs = _find_newest_runs(services.home, repo_id)
    commits = tuple(
        _describe_commit(git, commit, subject, runs) for commit, subject in list_first_parents(git, head, limit=limit)
    )
    return RepositoryHistory(repo_id=repo_id, ref=ref, commits=commits)


def _find_newest_runs(home: Home, repo_id: str) -> dict[str, dict[str, CheckRun]]:
    """The newest run of each check in a clean room that judges its tree, by tree; another one without such."""
    found: dict[str, dict[str, tuple[_Rank, CheckRun]]] = {}
    for rank, run in _list_room_runs(home, repo_id):
        checks = found.setdefault(run.tree, {})
        if run.check_id not in checks or checks[run.check_id][0] < rank:
            checks[run.check_id] = (rank, run)
    return {tree: {name: run for name, (_, run) in checks.items()} for tree, checks in found.items()}


class _Rank(NamedTuple):
    """A stopped run is no verdict on the tree, so it replaces none; nor does one that is no evidence for the gate."""

    judges: bool
    is_evidence: bool
    started_at: datetime


def _list_room_runs(home: Home, repo_id: str) -> Iterator[tuple[_Rank, CheckRun]]:
    """Runs of whole checks as the profile has them: a part, or its tests in another order, is another question."""
    for owner in (repo_id, *(task.id for task in list_tasks(home, repo_id))):
        for run in list_runs(home, owner, _MOST_RUNS):
            if run.clean_room and not run.arguments and run.shuffle_seed is None:
                judges = run.verdict is not Verdict.KILLED
                yield _Rank(judges, is_evidence(home, owner, run.run_id), run.started_at), run


def _describe_commit(git: Git, commit: str, subject: str, runs: dict[str, dict[str, CheckRun]]) -> CommitVerdicts:
    tree = objects.tree_of(git, commit)
    files, size = _measure_tree(git, tree)
    return CommitVerdicts(
        commit=commit,
        tree=tree,
        subject=one_line(subject),
        committed_at=datetime.fromtimestamp(objects.commit_time(git, commit), UTC),
        files=files,
        size_bytes=size,
        runs=tuple(_summarise(run) for _, run in sorted(runs.get(tree, {}).items())),
    )


def _measure_tree(git: Git, tree: str) -> tuple[int | None, int | None]:
    try:
        entries = objects.list_tree(git, tree)
    except SandboxError:  # a partial clone lacks files, or the tree is past the limits of a checkout
        return None, None
    return len(entries), sum(entry.size or 0 for entry in entries)


def _summarise(run: CheckRun) -> HistoryRun:
    return HistoryRun(
        check_id=run.check_id,
        verdict=run.verdict,
        run_id=run.run_id,
        wall_time_s=run.wall_time_s,
        memory_peak_bytes=run.usage.memory_peak_bytes,
        tests=run.report.tests if run.report else None,
        failed=run.report.failures + run.report.errors if run.report else None,
    )
