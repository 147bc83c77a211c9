"""Runs of checks: verdicts, what they used, what they printed, what they prove."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sandbox.models.changes import ChangeKind
from sandbox.models.checks import Limits
from sandbox.models.ids import CheckId, ObjectId, TaskId
from sandbox.models.model import Model, Sparse
from sandbox.models.repositories import Repository


class Verdict(StrEnum):
    """What the guest did."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OOM_KILLED = "oom_killed"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"


class CauseKind(StrEnum):
    """Where the reason of a verdict lies."""

    CODE = "code"  # the checked code is at fault
    ENVIRONMENT = "environment"  # it needs something that a check does not have: a command, a package, a network
    GUEST_INFRASTRUCTURE = "infrastructure-of-guest"  # it met a limit, or its guest ended
    UNKNOWN = "unknown"


class Cause(Model):
    """Why a check did not pass, as far as is known. Advice: it may come from guest text, and decides nothing."""

    kind: CauseKind
    sentence: str


class Usage(Model):
    """What a check used. None: this host could not measure it, which is never the same as zero.

    `disk_used_*`: what the limits on disk count, as last counted; None where that would have taken too long.
    """

    cpu_time_s: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int | None = None
    forks_refused: int | None = None
    disk_written_bytes: int | None = None
    disk_used_bytes: int | None = None
    disk_used_files: int | None = None
    leftover_processes: int | None = None
    limits: Limits


class TestFailure(Sparse):
    """One failing case of a JUnit report. Guest text: shown, never interpreted. `path`, `line`: where it says so."""

    __test__ = False  # not a pytest class

    name: str
    message: str
    path: str | None = None
    line: int | None = None


class FailedTest(Sparse):
    """The same in the run itself: what failed, why, and where as far as the report says."""

    test: str
    message: str
    path: str | None = None
    line: int | None = None


class Report(Model):
    """Summary of the JUnit file a check left in `/report`. Guest text: never decides a verdict."""

    tests: int
    failures: int
    errors: int
    skipped: int
    failed: tuple[TestFailure, ...]


class CheckRun(Model):
    """One execution of a check, bound to the tree and image it ran on.

    `cause`: None for what passed, and for runs recorded before there were causes.
    `failures`: the tests that failed, at most 50, where it left a report. `truncated`: the tails are not all that it
    printed; `..._shown_from_byte`: where in the stream each begins, None in records of older versions.
    """

    run_id: str
    check_id: CheckId
    task_id: TaskId | None
    verdict: Verdict
    cause: Cause | None = None
    exit_code: int | None
    signal: int | None
    started_at: datetime
    wall_time_s: float
    usage: Usage
    stdout_tail: str
    stderr_tail: str
    stdout_bytes: int
    stderr_bytes: int
    stdout_shown_from_byte: int | None = None
    stderr_shown_from_byte: int | None = None
    truncated: bool
    tree: ObjectId
    clean_room: bool
    cached: bool
    image_digest: str
    runtime: str
    report: Report | None
    failures: tuple[FailedTest, ...] = ()


class StoppedCheck(Model):
    """A check that was stopped. `verdict` is None where nobody recorded it: the process that ran it had died."""

    check_id: CheckId
    verdict: Verdict | None


class Stopped(Model):
    """The answer of `check stop`: what ran or waited in the task, and does no more."""

    task_id: TaskId
    stopped: tuple[StoppedCheck, ...]


class Verification(Model):
    """The answer of `verify`: the runs in order, and whether every required check passed on `tree`.

    `differences`: where a check said otherwise in the task, and which paths are only there; lines for people.
    """

    runs: tuple[CheckRun, ...]
    verified: bool
    tree: ObjectId
    differences: tuple[str, ...] = ()


class UncommittedChange(Model):
    """One path of a working directory that differs from the checked-out commit. An untracked one is `added`; one that
    ends in a slash is a directory of untracked files.
    """

    path: str
    kind: ChangeKind


class Uncommitted(Model):
    """What a working directory holds beside the commit that was verified: how many paths, and the first of them.

    `complete`: False when the directory could not be compared whole, so that there may be more.
    """

    count: int
    changes: tuple[UncommittedChange, ...]
    complete: bool


class RunSummary(Model):
    """The answer of `sandbox run`: a verification plus where its tree came from.

    `uncommitted`: of a local repository where the commit is checked out; None for any other.
    """

    repository: Repository
    ref: str
    commit: ObjectId
    profile: str
    runs: tuple[CheckRun, ...]
    verified: bool
    tree: ObjectId
    uncommitted: Uncommitted | None = None
