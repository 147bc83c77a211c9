"""Constants and enums without pydantic, which takes most of the start time of a short command."""

from __future__ import annotations

from enum import StrEnum

TASK_ID_PATTERN = r"^task-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
RUN_ID_PATTERN = r"run-[0-9a-f]{32}"
SLUG_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,199}$"
SIMPLE_NAME = "[a-z0-9][a-z0-9_-]{0,39}"
LAUNCH = "launch"
"""The id of the check that launches a candidate. A profile with `[launch]` has no other check of this name."""


class Actor(StrEnum):
    """Which surface called an operation: the command line, a program, or an agent."""

    CLI = "cli"
    PYTHON = "python"
    AGENT = "agent"


class ApprovalState(StrEnum):
    """State of an approval request. An approval for one call becomes `used` by that call."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    REVOKED = "revoked"
    EXPIRED = "expired"


class ApprovalScope(StrEnum):
    """What an approval allows: one call with exactly these arguments, or a tool for a task or repository."""

    ONCE = "once"
    TASK = "task"
    REPOSITORY = "repository"


class Host(StrEnum):
    """The kind of forge a remote lives on."""

    GITHUB = "github"
    GITLAB = "gitlab"
    UNKNOWN = "unknown"


class TaskStatus(StrEnum):
    """`working -> committed -> pushed -> pr-open -> merged`; `closed` from any.

    `spare`: made ahead, for the next caller who creates a task; until then no operation uses it.
    """

    SPARE = "spare"
    WORKING = "working"
    COMMITTED = "committed"
    PUSHED = "pushed"
    PR_OPEN = "pr-open"
    MERGED = "merged"
    CLOSED = "closed"


class TestOutcome(StrEnum):
    """How one test ended."""

    __test__ = False  # not a pytest class

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


BAD_OUTCOMES = frozenset({TestOutcome.FAILED, TestOutcome.ERROR})


class TestChangeKind(StrEnum):
    """How a test differs between two trees. A test that does not run any more, or is skipped, is missing."""

    __test__ = False  # not a pytest class

    NEWLY_FAILING = "newly_failing"
    MISSING = "missing"
    FLAKY = "flaky"
    STILL_FAILING = "still_failing"
    NEWLY_PASSING = "newly_passing"
    NEW = "new"


class Verdict(StrEnum):
    """What the guest did."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OOM_KILLED = "oom_killed"
    KILLED = "killed"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"


class WorkspaceKind(StrEnum):
    """Where a workspace keeps its files. New kinds are appended, never reordered."""

    LOCAL = "local"
    WORKTREE = "worktree"
    CLONE = "clone"
    TREE = "tree"
    EPHEMERAL = "ephemeral"


class ChangeKind(StrEnum):
    """How a path differs between two trees."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    TYPE_CHANGED = "type_changed"
