"""Runs of checks: verdicts, what they used, what they printed, what they prove."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from sandbox.models.checks import Limits
from sandbox.models.ids import CheckId, ObjectId, TaskId
from sandbox.models.model import Model
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


class TestFailure(Model):
    """One failing case of a JUnit report. Guest text: shown, never interpreted."""

    __test__ = False  # not a pytest class

    name: str
    message: str


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
    truncated: bool
    tree: ObjectId
    clean_room: bool
    cached: bool
    image_digest: str
    runtime: str
    report: Report | None


class StoppedCheck(Model):
    """A check that was stopped. `verdict` is None where nobody recorded it: the process that ran it had died."""

    check_id: CheckId
    verdict: Verdict | None


class Stopped(Model):
    """The answer of `check stop`: what ran or waited in the task, and does no more."""

    task_id: TaskId
    stopped: tuple[StoppedCheck, ...]


StreamName = Literal["stdout", "stderr"]


class RunLog(Model):
    """What is kept of one stream of a run. `content`: safe to show, or with encoding `base64` the exact bytes.

    `total_bytes`: what the run wrote. `truncated`: the middle was not kept; a line in its place says how much.
    """

    run_id: str
    check_id: CheckId
    stream: StreamName
    content: str
    encoding: Literal["utf-8", "base64"]
    total_bytes: int
    truncated: bool


class Verification(Model):
    """The answer of `verify`: the runs in order, and whether every required check passed on `tree`.

    `differences`: where a check said otherwise in the task, and which paths are only there; lines for people.
    """

    runs: tuple[CheckRun, ...]
    verified: bool
    tree: ObjectId
    differences: tuple[str, ...] = ()


class RunSummary(Model):
    """The answer of `sandbox run`: a verification plus where its tree came from."""

    repository: Repository
    ref: str
    commit: ObjectId
    profile: str
    runs: tuple[CheckRun, ...]
    verified: bool
    tree: ObjectId
