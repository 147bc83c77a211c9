"""Public data shapes: what the workbench takes and returns, what is stored, what `--json` prints.

Field names are the JSON contract. Every model is frozen and refuses unknown fields.
"""

from __future__ import annotations

from sandbox.models.approvals import Approval, ApprovalScope, ApprovalState
from sandbox.models.attacks import AttackOutcome, AttackReport, AttackResult
from sandbox.models.changes import Change, ChangeKind, CommitResult, Diff, DiffFile, PushResult, Status
from sandbox.models.checks import Check, Limits, Risk, Suggestion
from sandbox.models.context import Context, Entrypoint, FetchResult, Readme, RepoMap, Signals
from sandbox.models.files import FileContent, PatchedFile, PatchResult
from sandbox.models.host import CredentialInfo, ImageInfo, Probe, ProbeLevel
from sandbox.models.ids import SLUG_PATTERN, TASK_ID_PATTERN, CheckId, ObjectId, RepoId, Sha256, SnapshotId, TaskId
from sandbox.models.journal import Actor, JournalEntry
from sandbox.models.leftovers import Leftover, Reconciliation, Tidying
from sandbox.models.model import Model
from sandbox.models.pulls import CiCheck, CiState, CiVerdict, PullRequest, PullRequestStatus, PullState
from sandbox.models.repositories import CloneResult, Host, Repository, RepositoryRemoval
from sandbox.models.runs import (
    CheckRun,
    Report,
    RunLog,
    RunSummary,
    Stopped,
    StoppedCheck,
    StreamName,
    TestFailure,
    Usage,
    Verdict,
    Verification,
)
from sandbox.models.search import SearchHit, SearchQuery, SearchResult, SearchSkipped
from sandbox.models.snapshots import Restored, Snapshot
from sandbox.models.tasks import Task, TaskStatus, WorkspaceKind

__all__ = [
    "SLUG_PATTERN",
    "TASK_ID_PATTERN",
    "Actor",
    "Approval",
    "ApprovalScope",
    "ApprovalState",
    "AttackOutcome",
    "AttackReport",
    "AttackResult",
    "Change",
    "ChangeKind",
    "Check",
    "CheckId",
    "CheckRun",
    "CiCheck",
    "CiState",
    "CiVerdict",
    "CloneResult",
    "CommitResult",
    "Context",
    "CredentialInfo",
    "Diff",
    "DiffFile",
    "Entrypoint",
    "FetchResult",
    "FileContent",
    "Host",
    "ImageInfo",
    "JournalEntry",
    "Leftover",
    "Limits",
    "Model",
    "ObjectId",
    "PatchResult",
    "PatchedFile",
    "Probe",
    "ProbeLevel",
    "PullRequest",
    "PullRequestStatus",
    "PullState",
    "PushResult",
    "Readme",
    "Reconciliation",
    "RepoId",
    "RepoMap",
    "Report",
    "Repository",
    "RepositoryRemoval",
    "Restored",
    "Risk",
    "RunLog",
    "RunSummary",
    "SearchHit",
    "SearchQuery",
    "SearchResult",
    "SearchSkipped",
    "Sha256",
    "Signals",
    "Snapshot",
    "SnapshotId",
    "Status",
    "Stopped",
    "StoppedCheck",
    "StreamName",
    "Suggestion",
    "Task",
    "TaskId",
    "TaskStatus",
    "TestFailure",
    "Tidying",
    "Usage",
    "Verdict",
    "Verification",
    "WorkspaceKind",
]
