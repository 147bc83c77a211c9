"""Verdicts along a history: which commit broke a check, and what each commit's checks took."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sandbox.models.ids import CheckId, ObjectId, RepoId
from sandbox.models.model import Model, SparseModel
from sandbox.models.words import Verdict


class BisectQuery(Model):
    """What to search for. `good`, `bad`: branches, tags or commit ids. `test`: as in the results of the check; None:
    its verdict is asked for.
    """

    good: str
    bad: str = "HEAD"
    check_id: CheckId
    test: str | None = None


class JudgedCommit(SparseModel):
    """A commit that a search looked at. `subject`: text of its author. `outcome`: `unknown` if the check or the test
    did not run, or did not end by itself; `reason` says why. `verdict`, `run_id`, `cached`: of the run that says so.
    """

    commit: ObjectId
    tree: ObjectId
    subject: str
    outcome: Literal["good", "bad", "unknown"]
    verdict: Verdict | None = None
    run_id: str | None = None
    cached: bool | None = None
    reason: str | None = None


class Bisection(SparseModel):
    """The answer of `bisect`. `test`: None if the check's verdict was asked for. `between`: how many commits `bad` has
    beyond `good`, along first parents. `first_bad`: absent if commits beside it are unknown; then it is one of
    `candidates`, oldest first. `judged`: all that were looked at, oldest first.
    """

    repo_id: RepoId
    check_id: CheckId
    test: str | None = None
    good: ObjectId
    bad: ObjectId
    between: int
    first_bad: JudgedCommit | None = None
    candidates: tuple[ObjectId, ...] = ()
    judged: tuple[JudgedCommit, ...]


class HistoryRun(SparseModel):
    """The last run of a check in a clean room on a commit's tree."""

    check_id: CheckId
    verdict: Verdict
    run_id: str
    wall_time_s: float
    memory_peak_bytes: int | None = None
    tests: int | None = None
    failed: int | None = None


class CommitVerdicts(SparseModel):
    """One commit. `files`, `size_bytes`: of its tree; absent where a partial clone lacks them. `runs`: by check."""

    commit: ObjectId
    tree: ObjectId
    subject: str
    committed_at: datetime
    files: int | None = None
    size_bytes: int | None = None
    runs: tuple[HistoryRun, ...]


class RepositoryHistory(Model):
    """The answer of `history`: the newest commits along first parents, newest first."""

    repo_id: RepoId
    ref: str
    commits: tuple[CommitVerdicts, ...]
