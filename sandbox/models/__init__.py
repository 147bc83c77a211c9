"""Public data shapes: what the workbench takes and returns, what is stored, what `--json` prints.

Field names are the JSON contract. Every model is frozen and refuses unknown fields. A module of them is loaded when one
of its names is first asked for: a command pays for the shapes it uses (docs/adr/0003).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.models.approvals import Approval
    from sandbox.models.attacks import AttackOutcome, AttackReport, AttackResult
    from sandbox.models.changes import Change, ChangeKind, CommitResult, Diff, DiffFile, PushResult, Status
    from sandbox.models.checks import Check, Limits, Risk, Suggestion
    from sandbox.models.context import Context, Entrypoint, FetchResult, Readme, RepoMap, Signals
    from sandbox.models.files import FileContent, PatchedFile, PatchResult
    from sandbox.models.host import CredentialInfo, ImageInfo, Probe, ProbeLevel
    from sandbox.models.ids import CheckId, ObjectId, RepoId, Sha256, SnapshotId, TaskId
    from sandbox.models.journal import JournalEntry
    from sandbox.models.leftovers import Leftover, Reconciliation, Tidying
    from sandbox.models.model import Model
    from sandbox.models.pulls import CiCheck, CiState, CiVerdict, PullRequest, PullRequestStatus, PullState
    from sandbox.models.repositories import CloneResult, Repository, RepositoryRemoval
    from sandbox.models.runs import (
        Cause,
        CauseKind,
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
    from sandbox.models.snapshots import Cleaned, Restored, Snapshot
    from sandbox.models.tasks import Task, WorkspaceKind
    from sandbox.models.words import (
        SLUG_PATTERN,
        TASK_ID_PATTERN,
        Actor,
        ApprovalScope,
        ApprovalState,
        Host,
        TaskStatus,
    )

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
    "Cause",
    "CauseKind",
    "Change",
    "ChangeKind",
    "Check",
    "CheckId",
    "CheckRun",
    "CiCheck",
    "CiState",
    "CiVerdict",
    "Cleaned",
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

_MODULES = {
    "approvals": "Approval",
    "attacks": "AttackOutcome AttackReport AttackResult",
    "changes": "Change ChangeKind CommitResult Diff DiffFile PushResult Status",
    "checks": "Check Limits Risk Suggestion",
    "context": "Context Entrypoint FetchResult Readme RepoMap Signals",
    "files": "FileContent PatchResult PatchedFile",
    "host": "CredentialInfo ImageInfo Probe ProbeLevel",
    "ids": "CheckId ObjectId RepoId Sha256 SnapshotId TaskId",
    "journal": "JournalEntry",
    "leftovers": "Leftover Reconciliation Tidying",
    "model": "Model",
    "pulls": "CiCheck CiState CiVerdict PullRequest PullRequestStatus PullState",
    "repositories": "CloneResult Repository RepositoryRemoval",
    "runs": "Cause CauseKind CheckRun Report RunLog RunSummary Stopped StoppedCheck StreamName TestFailure Usage "
    "Verdict Verification",
    "search": "SearchHit SearchQuery SearchResult SearchSkipped",
    "snapshots": "Cleaned Restored Snapshot",
    "tasks": "Task WorkspaceKind",
    "words": "Actor ApprovalScope ApprovalState Host SLUG_PATTERN TASK_ID_PATTERN TaskStatus",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load the module that has the name, and keep it here."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    """For help and completion: names that were not asked for yet are there too."""
    return [*globals(), *_MODULE_OF.keys() - globals().keys()]
