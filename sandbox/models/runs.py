"""Runs of checks: verdicts, resource usage and output."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, Field

from sandbox.models.checks import Limits
from sandbox.models.ids import CheckId, ObjectId, TaskId
from sandbox.models.model import Model, SparseModel
from sandbox.models.remarks import Remark
from sandbox.models.repositories import Repository
from sandbox.models.service_rules import ServiceRun
from sandbox.models.words import ChangeKind, Verdict


class CauseKind(StrEnum):
    """Where the cause of a verdict lies."""

    CODE = "code"  # the checked code is at fault
    ENVIRONMENT = "environment"  # a check lacks what the code needs: a command, a package; or it was stopped
    GUEST_INFRASTRUCTURE = "infrastructure-of-guest"  # it reached a limit, or its guest ended
    UNKNOWN = "unknown"


class Cause(Model):
    """Why a check did not pass, as far as known. Advice only: it may come from guest text and decides no verdict."""

    kind: CauseKind
    sentence: str


class Pressure(SparseModel):
    """How many seconds of a run at least one task waited for CPU, memory or I/O, as the kernel counts it.

    `of`: whether the guest's tasks are counted, or all tasks of the host. A guest also waits because of its own limits.
    """

    of: Literal["guest", "host"]
    cpu_s: float | None = None
    memory_s: float | None = None
    io_s: float | None = None


class Usage(Model):
    """What a check used. None: this host could not measure it, which is not the same as zero.

    `cpu_throttled_s`: how long its limit on CPUs held it back, summed over CPUs. `disk_used_*`: the amounts that the
    disk limits apply to, at the last count; None if counting took too long. `memory_left_bytes`: what the guest held in
    memory after the check: files in /tmp, the home and /dev/shm, shared memory, memory of the kernel for it, and its
    supervisor.
    `own_pids_limit`: the refused forks were refused by `limits.pids`; False: perhaps by the bound of all guests.
    `host_out_of_memory`: the kernel killed a process, and not because of `limits.memory_bytes`: all guests together had
    reached their bound, or the host its end.
    """

    cpu_time_s: float | None = None
    memory_peak_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int | None = None
    forks_refused: int | None = None
    own_pids_limit: bool | None = None
    disk_written_bytes: int | None = None
    disk_used_bytes: int | None = None
    disk_used_files: int | None = None
    leftover_processes: int | None = None
    memory_left_bytes: int | None = None
    cpu_throttled_s: float | None = None
    pressure: Pressure | None = None
    host_out_of_memory: bool | None = None
    limits: Limits


class TestFailure(SparseModel):
    """A failing case of a JUnit report. Guest text: shown, never interpreted. `path`, `line`: if it has them."""

    __test__ = False  # not a pytest class

    name: str
    message: str
    path: str | None = None
    line: int | None = None


class FailedTest(SparseModel):
    """A failing test as part of a run: name, message, and location if the report has it.

    `argument`: of a run in a task, what `arguments` of the check take to run this test; None where its runner takes
    none, or is not known.
    """

    test: str
    argument: str | None = None
    message: str
    path: str | None = None
    line: int | None = None


class Report(Model):
    """Summary of the reports that a check wrote to `/report`, or of its output. Guest text: never decides a verdict.

    `kind`: `diagnostics` if it has only what a compiler or linter found; then `tests` is their number.
    """

    tests: int
    failures: int
    errors: int
    skipped: int
    failed: tuple[TestFailure, ...]
    kind: Literal["tests", "diagnostics"] = "tests"


class LaunchPhase(StrEnum):
    """The phases of a launch, in their order."""

    READY = "ready"
    PROBE = "probe"
    SOAK = "soak"
    STOP = "stop"


class PhaseVerdict(StrEnum):
    """How a phase ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


GUEST_ENDED = "its guest ended"
"""`PhaseRun.why` of the phase that was on when the guest ended: by a limit, by the engine, or on request."""


class PhaseRun(SparseModel):
    """One phase of a launch. `name`: of a probe. `why`: why it did not pass. `output`: the begin of what a command
    printed, if it did not pass followed by that of its errors; guest text. `artifact`: path of the file that it left,
    on the host; `artifact_sha256`: of its content.
    """

    phase: LaunchPhase
    name: str = ""
    verdict: PhaseVerdict
    wall_time_s: float
    why: str = ""
    exit_code: int | None = None
    output: str = ""
    artifact: str | None = None
    artifact_sha256: str | None = None

    def describe(self) -> str:
        """One line, for people and agents; `why` may quote guest text."""
        what = f"{self.phase.value} {self.name}".strip()
        why = f": {self.why}" if self.why else ""
        return f"{what}: {self.verdict.value.replace('_', ' ')} in {self.wall_time_s:.1f} s{why}"


class CheckRun(Model):
    """One execution of a check, bound to the tree and image it ran on.

    `cause`: None if it passed, and in records of older versions. `failures`: failed tests of its report, at most 50.
    `truncated`: the tails are not the whole output. `..._shown_from_byte`: offset of each tail in its stream, None in
    records of older versions. `guest_user`: `own` if no other guest and no program of the host had its uid, `shared`
    if the controller was not root, None in records of older versions. `layers`: keys of the dependency layers it had.
    `tenant`: for whom it ran; None without the setting `container.tenant`. `services`: what ran beside it.
    `arguments`: what the caller added: then only a part of the check ran.
    `session`: that of the agent that asked for it, as in the journal; empty for a person.
    `timeout_s`: the deadline of `wall_time_s`; None in records of older versions.
    `compiler_cache`: `read` if its compilers could take results of the default branch's rooms, `filled` if theirs are
    kept for other rooms. Only with `read` was it not compiled from scratch.
    `results_lost`: results of tests may be missing, since what has them was cut, left out or could not be read: `notes`
    say what; False in records of older versions. So no `report` does not mean that there were no tests.
    `phases`: of a launch, how each went. `notes`: what the caller should know: what of it could not be read; and a
    check that the changed files need before this one, which is not recorded.
    `missing_packages`: packages that the project asks for and the guest did not have, with the reason, a clause each.
    What passed without them may have used those of the image, or none. A run that had all has no such field.
    `shuffle_seed`: its tests ran in the order of this seed; a run in the usual order, or an older record, has none.
    `shared_key`: key of the entry of the shared verdict cache that answered; a run of this home has no such field.
    `refused`: it passed, and the verdict cache did not take it, so it opens no gate; its record has no such field.
    """

    run_id: str
    check_id: CheckId
    arguments: tuple[str, ...] = ()
    task_id: TaskId | None
    verdict: Verdict
    cause: Cause | None = None
    exit_code: int | None
    signal: int | None
    started_at: AwareDatetime
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
    guest_user: Literal["own", "shared"] | None = None
    cached: bool
    image_digest: str
    runtime: str
    layers: tuple[str, ...] = ()
    compiler_cache: Literal["read", "filled"] | None = None
    services: tuple[ServiceRun, ...] = ()
    tenant: str | None = None
    session: str = ""
    timeout_s: float | None = None
    report: Report | None
    results_lost: bool = False
    failures: tuple[FailedTest, ...] = ()
    phases: tuple[PhaseRun, ...] = ()
    notes: tuple[str, ...] = ()
    missing_packages: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    shuffle_seed: int | None = Field(default=None, exclude_if=lambda value: value is None)
    shared_key: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", exclude_if=lambda value: not value)
    refused: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def place(self) -> Literal["task", "clean room", "fresh room"]:
        """Where it ran. A room is fresh, not clean, if other programs have its uid: they share its kernel limits."""
        if not self.clean_room:
            return "task"
        return "fresh room" if self.guest_user == "shared" else "clean room"


class StoppedCheck(Model):
    """A check that was stopped. `verdict`: None if it was not recorded because the process that ran it had died."""

    check_id: CheckId
    verdict: Verdict | None


class StopResult(Model):
    """The answer of `check stop`: the checks that ran or waited in the task and were stopped."""

    task_id: TaskId
    stopped: tuple[StoppedCheck, ...]


class UncommittedChange(Model):
    """One path of a working directory that differs from the checked-out commit. An untracked path is `added`; a path
    that ends in a slash is a directory of untracked files.
    """

    path: str
    kind: ChangeKind


class UncommittedChanges(Model):
    """Differences of a working directory from the verified commit: how many paths, and the first of them.

    `complete`: False if the whole directory could not be compared, so there may be more. `included`: the verified tree
    has them. `left_out`: names that no tree can have, such as nested repositories, so they are not included.
    """

    count: int
    changes: tuple[UncommittedChange, ...]
    complete: bool
    included: bool = False
    left_out: tuple[str, ...] = ()


class PullRequestCommit(Model):
    """The commit of a pull request. `merged`: the forge's trial merge with the base branch, not the request's own.

    `author` and `subject` are of the commit, written by anyone.
    """

    number: int
    merged: bool
    author: str
    subject: str


class RunSummary(Model):
    """The answer of `sandbox run`: a verification, and where its tree came from.

    `verified`: every check that was asked for passed. `left_out`: the other checks of the profile, which the gate asks
    for too, so the tree is verified only if there is none. `nothing_changed`: only checks of what changed were asked
    for, and none had: no check ran, and the tree is not verified.
    `uncommitted`: for a local repository that has the commit checked out; else None. `pull_request`: if `ref` is one.
    `subpath`: the folder that the checks of `profile` ran in, '' for the top; projects have folders of their own.
    `advice`: what was seen that may keep checks from passing. `protocol`: what the remote was reached over, if that is
    not the protocol of its URL.
    """

    repository: Repository
    ref: str
    commit: ObjectId
    profile: str
    subpath: str = ""
    runs: tuple[CheckRun, ...]
    verified: bool
    nothing_changed: bool = False
    left_out: tuple[str, ...] = ()
    tree: ObjectId
    uncommitted: UncommittedChanges | None = None
    pull_request: PullRequestCommit | None = None
    advice: tuple[Remark, ...] = ()
    protocol: str = ""
