"""Public data shapes: what the workbench takes and returns, what is stored, what `--json` prints.

Field names are the JSON contract. Every model is frozen and refuses unknown fields.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, StringConstraints

TASK_ID_PATTERN = r"^task-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
SLUG_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,199}$"

ObjectId = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
"""A full git object id, SHA-1 or SHA-256."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""Content hash of a whole file."""

TaskId = Annotated[str, StringConstraints(pattern=TASK_ID_PATTERN)]
RepoId = Annotated[str, StringConstraints(pattern=SLUG_PATTERN)]
SnapshotId = Annotated[str, StringConstraints(pattern=r"^snap-[0-9a-f]{13}-[0-9a-f]{6}$")]
CheckId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]


class Model(BaseModel):
    """Base of every shape we own: immutable, typos fail. Validators are built on first use: commands start fast."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Host(StrEnum):
    """The kind of forge a remote lives on."""

    GITHUB = "github"
    GITLAB = "gitlab"
    UNKNOWN = "unknown"


class Repository(Model):
    """A registered remote with its cache clone. `remote_url` never holds credentials."""

    id: RepoId
    remote_url: str
    host: Host
    hostname: str
    owner: str
    name: str
    default_branch: str
    profile: str
    created_at: datetime


class TaskStatus(StrEnum):
    """`working -> committed -> pushed -> pr-open -> merged`; `closed` from any."""

    WORKING = "working"
    COMMITTED = "committed"
    PUSHED = "pushed"
    PR_OPEN = "pr-open"
    MERGED = "merged"
    CLOSED = "closed"


class WorkspaceKind(StrEnum):
    """How a task keeps its files; DESIGN section 7."""

    LOCAL = "local"
    WORKTREE = "worktree"
    CLONE = "clone"
    TREE = "tree"


class Task(Model):
    """One piece of work on one repository."""

    id: TaskId
    repo_id: RepoId
    prompt: str
    base_branch: str
    branch: str
    base_commit: ObjectId
    workspace_kind: WorkspaceKind
    worktree_path: Path | None
    status: TaskStatus
    head_commit: ObjectId
    pr_url: str | None = None
    forked_from: TaskId | None = None
    created_at: datetime
    committed_at: datetime | None = None
    pushed_at: datetime | None = None
    closed_at: datetime | None = None


class Limits(Model):
    """What one check may use. Each line says what happens when the limit is reached."""

    memory_bytes: PositiveInt = 4 * 1024**3  # the kernel kills: Verdict.OOM_KILLED
    cpus: PositiveFloat = 2.0  # the scheduler throttles
    pids: PositiveInt = 512  # fork fails inside the guest
    file_bytes: PositiveInt = 4 * 1024**3  # writes to one file fail (SIGXFSZ)
    open_files: PositiveInt = 4096  # open fails inside the guest
    tmp_bytes: PositiveInt = 512 * 1024**2  # writes to /tmp fail (ENOSPC)
    home_bytes: PositiveInt = 128 * 1024**2  # writes to the home directory fail (ENOSPC)
    output_bytes: PositiveInt = 10 * 1024**2  # per stream: the middle is dropped, truncated=True
    disk_bytes: PositiveInt = 10 * 1024**3  # of its files: it is stopped, Verdict.DISK_LIMIT
    disk_files: PositiveInt = 500_000  # as above


class Risk(StrEnum):
    """What a tool or check can touch; drives approvals."""

    FILESYSTEM_READ = "filesystem-read"
    FILESYSTEM_WRITE = "filesystem-write"
    SHELL = "shell"


class Check(Model):
    """One named command of a profile. `cwd` is relative to the workspace; `env` adds to the fixed environment."""

    id: CheckId
    label: str
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    env: dict[str, str] = Field(default_factory=dict)
    timeout_s: PositiveFloat = 300.0
    limits: Limits = Limits()
    requires: tuple[CheckId, ...] = ()
    risk: Risk = Risk.SHELL


class Suggestion(Model):
    """The checks that a repository suggests at its default branch. `sha256`: of the file, None when there is none.

    `trusted`: they are used, in every base commit whose file has this hash. `profile`: what they add to.
    """

    repo_id: RepoId
    path: str
    sha256: Sha256 | None
    trusted: bool
    profile: str
    checks: tuple[Check, ...]


class Verdict(StrEnum):
    """What the guest did."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OOM_KILLED = "oom_killed"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"


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
    """One execution of a check, bound to the tree and image it ran on."""

    run_id: str
    check_id: CheckId
    task_id: TaskId | None
    verdict: Verdict
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


class FileContent(Model):
    """A file or a range of its lines (1-based, inclusive). `sha256` and `size` are of the whole file."""

    path: str
    sha256: Sha256
    size: int
    content: str
    encoding: Literal["utf-8", "base64"]
    start_line: int | None
    end_line: int | None
    total_lines: int | None
    truncated: bool


class ChangeKind(StrEnum):
    """How a path differs between two trees."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    TYPE_CHANGED = "type_changed"


class Change(Model):
    """One changed path; `sha256` is None for a deletion."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256: Sha256 | None = None


class Status(Model):
    """The task's working state against its head (`changes`, `dirty`) and base (`ahead`: commits)."""

    branch: str
    head_commit: ObjectId
    base_commit: ObjectId
    ahead: int
    dirty: bool
    changes: tuple[Change, ...]
    rejected: tuple[str, ...] = ()


class DiffFile(Model):
    """One file of a diff. `additions`/`deletions` are None for binary content and for files too large to compare."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    additions: int | None
    deletions: int | None
    sha256: Sha256 | None = None


class Diff(Model):
    """A unified diff and its files. `truncated`: lines are missing; `files` is complete in any case."""

    text: str
    files: tuple[DiffFile, ...]
    truncated: bool


class Snapshot(Model):
    """A kept working state of a task: a commit on its head, never pushed.

    `rejected`: names that no tree can hold and that were left out; known only to who takes it.
    """

    id: SnapshotId
    tree: ObjectId
    commit: ObjectId
    created_at: datetime
    label: str = ""
    rejected: tuple[str, ...] = ()


class Restored(Status):
    """The status after a restore to `tree`. `previous`: the snapshot that keeps the state before it."""

    tree: ObjectId
    previous: Snapshot


class PatchedFile(Model):
    """One file an edit changed; a None hash: absent on that side. `old_path`: what it was renamed or copied from."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None


class PatchResult(Model):
    """What an edit did. `snapshot` is the id of the tree state before it, when one was taken.

    `adjusted`: what a patch meant other than it was written, e.g. a hunk that fits at another line than it says.
    """

    files: tuple[PatchedFile, ...]
    adjusted: tuple[str, ...] = ()
    snapshot: str | None = None


class CommitResult(Model):
    """A new commit on the task's branch."""

    commit: ObjectId
    tree: ObjectId
    files: tuple[Change, ...]


class PushResult(Model):
    """What the remote now holds. `forced`: the branch moved with a lease."""

    branch: str
    commit: ObjectId
    forced: bool


class Actor(StrEnum):
    """Who asked for an operation: the command line, a program, or an agent."""

    CLI = "cli"
    PYTHON = "python"
    AGENT = "agent"


class JournalEntry(Model):
    """One operation on a task, refused ones too. Never holds contents, messages or secrets.

    `arguments`: digest of the canonical JSON of all arguments. `names`: the first paths, checks or ids it was about.
    `before`, `after`: working trees, where the operation had them; an edit has its `files` instead.
    `result`: `ok`, or the code of the error.
    """

    at: datetime
    actor: Actor
    operation: str
    arguments: Sha256
    names: tuple[str, ...] = ()
    before: ObjectId | None = None
    after: ObjectId | None = None
    files: tuple[PatchedFile, ...] = ()
    result: str
    duration_s: float


class ApprovalState(StrEnum):
    """Where a question to a person stands. An approval for one call is `used` by it."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    REVOKED = "revoked"
    EXPIRED = "expired"


class ApprovalScope(StrEnum):
    """What an approval is for: one call with exactly these arguments, or a tool within a task or repository."""

    ONCE = "once"
    TASK = "task"
    REPOSITORY = "repository"


class Approval(Model):
    """A question to a person about one call of an agent, and its answer.

    `fingerprint`: over tool, canonical arguments, the state of the task and the policy. `arguments`: canonical JSON.
    `question`: what the person needs to know, whole; guest text among it is neutralised. `decided_by`: who, and how.
    `policy`: version of the approval policy it was asked under.
    """

    id: Annotated[str, StringConstraints(pattern=r"^apr-[a-z2-7]{26}$")]
    tool: str
    fingerprint: Sha256
    policy: str
    arguments: str
    task_id: TaskId | None = None
    repo_id: RepoId | None = None
    question: tuple[str, ...]
    state: ApprovalState = ApprovalState.PENDING
    scope: ApprovalScope = ApprovalScope.ONCE
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""


class Readme(Model):
    """The first README of a repository, clipped."""

    path: str
    content: str
    truncated: bool


class Entrypoint(Model):
    """A file that tells how a repository is built, run or contributed to."""

    path: str
    kind: str


class Signals(Model):
    """Cheap facts about what a repository holds."""

    has_readme: bool
    has_docs_dir: bool
    has_code: bool
    doc_file_count: int
    code_file_count: int
    sparse: bool


class Context(Model):
    """Orientation envelope: about 8 KB at most. Repository text: untrusted."""

    tree: tuple[str, ...]
    tree_total: int
    tree_truncated: bool
    readme: Readme | None
    entrypoints: tuple[Entrypoint, ...]
    doc_hints: tuple[str, ...]
    signals: Signals


class FetchResult(Context):
    """The answer of `repo fetch`: an immutable checkout of the commit, or of one directory of it, and its envelope."""

    local_path: Path
    commit_sha: ObjectId
    files_count: int


class RepoMap(Model):
    """The symbols that matter most, as text. `tokens_estimated` never exceeds the budget asked for."""

    map: str
    tokens_estimated: int
    files_covered: int
    files_total: int


class CloneResult(Model):
    """The answer of `repo clone`."""

    repository: Repository
    context: Context


class RepositoryRemoval(Model):
    """The answer of `repo remove`. `lost`: work that existed only here and went with it, in words."""

    repo_id: RepoId
    remote_url: str | None
    lost: tuple[str, ...]


class Tidying(StrEnum):
    """What became of a leftover. `busy`: somebody works there, the next time does it."""

    REMOVED = "removed"
    RESCUED = "rescued"
    RESTORED = "restored"
    KEPT = "kept"
    BUSY = "busy"
    FAILED = "failed"


class Leftover(Model):
    """One thing that a controller left when it was killed. `note`: where its work went, or why it stays."""

    kind: str
    name: str
    action: Tidying
    note: str = ""


class Reconciliation(Model):
    """The answer of `gc`; with `dry_run` the actions are what it would do."""

    dry_run: bool
    leftovers: tuple[Leftover, ...]


class ImageInfo(Model):
    """One image of ours and whether the engine has it. `stale`: its recipe changed since it was built."""

    name: str
    tag: str
    present: bool
    stale: bool
    digest: str | None = None
    size_bytes: int | None = None
    created_at: str | None = None


class CredentialInfo(Model):
    """A stored credential without its secret. `kind`: what it authenticates with. `store`: where the secret is."""

    host: str
    kind: Literal["secret", "ssh_key", "ca_only"]
    username: str = ""
    ssh_key: Path | None = None
    ca_file: Path | None = None
    store: Literal["file", "keyring"] = "file"


class ProbeLevel(StrEnum):
    """Severity of a doctor line."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Probe(Model):
    """One line of `sandbox doctor`."""

    name: str
    level: ProbeLevel
    value: str
    hint: str = ""


class SearchQuery(Model):
    """What to look for in a task's files. `glob` alone lists paths; see docs/search.md."""

    pattern: str | None = None
    glob: str | None = None
    regex: bool = False
    ignore_case: bool = False
    include_ignored: bool = False
    max_results: int = 200
    timeout_s: float = 10.0


class SearchHit(Model):
    """One line with a match, from 1. `cut`: the line is longer, `text` is the part around the match."""

    path: str
    line: int
    text: str
    cut: bool = False


class SearchSkipped(Model):
    """Files left out. `binary`: they match, but have no lines; `ignored`: None where nobody counted them."""

    binary: int
    too_large: int
    ignored: int | None


class SearchResult(Model):
    """Hits in the order of paths and lines. `files`: all paths with a match, binary ones too, or all that a glob alone
    means. `truncated`: there may be more, because of `stopped_by`.
    """

    hits: tuple[SearchHit, ...]
    files: tuple[str, ...]
    truncated: bool
    stopped_by: Literal["max_results", "time", "pattern"] | None
    skipped: SearchSkipped


class AttackOutcome(StrEnum):
    """How an attack on this host ended. `void`: its control was not hit, so nothing is proven; `error`: we failed."""

    HELD = "held"
    GOT_THROUGH = "got_through"
    VOID = "void"
    SKIPPED = "skipped"
    ERROR = "error"


class AttackResult(Model):
    """One entry of `sandbox doctor --attack`. `tried`: what the product did on hostile ground.

    `control`: what the careless command suffered there; `seen`: what happened to the product, or why it was skipped.
    """

    id: str
    title: str
    section: str
    tried: str
    outcome: AttackOutcome
    control: str = ""
    seen: str = ""
    wall_time_s: float


class AttackReport(Model):
    """The answer of `sandbox doctor --attack`. `safe`: nothing got through, and nothing is void or an error.

    `skipped` entries need what this host lacks and say so. `engine` is empty where no entry needed one.
    """

    results: tuple[AttackResult, ...]
    safe: bool
    held: int
    got_through: int
    void: int
    skipped: int
    errors: int
    wall_time_s: float
    engine: str
    runtime: str
    git: str
