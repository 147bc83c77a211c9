"""Public data shapes: what the workbench takes and returns, what is stored, what `--json` prints.

Field names are the JSON contract. Every model is frozen and refuses unknown fields. A module is imported when one of
its names is first used, so that a command loads only the models it needs (docs/adr/0003).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.models.approvals import Approval
    from sandbox.models.artifact_lists import Artifact, ArtifactList, Coverage, RefusedArtifact
    from sandbox.models.attacks import AttackOutcome, AttackReport, AttackResult, Threat, ThreatState
    from sandbox.models.audit import AuditRecord, AuditReport, BrokenEntry, JournalDamage, JournalState
    from sandbox.models.background import BackgroundOperation, BackgroundRun
    from sandbox.models.callers import Caller, Permission
    from sandbox.models.changes import Change, CommitResult, Diff, DiffFile, PushResult, Status
    from sandbox.models.checks import (
        ArtifactRule,
        Check,
        CheckParameter,
        LaunchProbe,
        LaunchReady,
        LaunchRule,
        LaunchSteps,
        LaunchStop,
        Limits,
        ReleaseRule,
        Risk,
    )
    from sandbox.models.clone_results import CloneResult, RemoveResult, RepositoryUpdate
    from sandbox.models.commit_verdicts import (
        Bisection,
        BisectQuery,
        CommitVerdicts,
        HistoryRun,
        JudgedCommit,
        RepositoryHistory,
    )
    from sandbox.models.comparisons import CheckComparison, CoverageChange, TestChange, TreeComparison
    from sandbox.models.context import Context, Entrypoint, FetchResult, Readme, RepoMap, Signals
    from sandbox.models.dependencies import (
        LockedPackage,
        Manifest,
        RefusalReason,
        RefusedEntry,
        Requirement,
        RequirementRole,
    )
    from sandbox.models.egress import EgressAccess, EgressRefusal
    from sandbox.models.explorations import Exploration, ExploredWay
    from sandbox.models.file_classes import ClassImpact, FileClass, Impact, NeededCheck
    from sandbox.models.files import FileContent, PatchedFile, PatchResult
    from sandbox.models.flaky import FlakyTest
    from sandbox.models.guest_table import Guest, GuestKind, GuestTable, QueuedCheck
    from sandbox.models.home_event import HomeEvent, HomeEventKind
    from sandbox.models.host import CredentialInfo, ImageArchive, ImageInfo, Probe, ProbeLevel, TransferredImage
    from sandbox.models.ids import CheckId, ObjectId, PackageName, RepoId, Sha256, SnapshotId, TaskId
    from sandbox.models.journal import Delivery, GateState, JournalEntry
    from sandbox.models.layers import (
        Layer,
        LayerDetails,
        LayerPackage,
        LayerRule,
        LayerSummary,
        LayerUser,
        PreparedLayers,
        RemovedLayers,
        Resolution,
    )
    from sandbox.models.leftovers import Leftover, LeftoverAction, Reconciliation
    from sandbox.models.logs import LogLines, LogMatch, LogName, LogQuery, RunLog, StreamName
    from sandbox.models.model import Model, SparseModel
    from sandbox.models.moves import (
        AppliedFile,
        ApplyResult,
        CheckoutResult,
        ConflictKind,
        ConflictResolution,
        ConflictSide,
        MergeConflict,
        SyncResult,
        SyncState,
    )
    from sandbox.models.policies import PolicyAnswer, PolicyDifference, PolicyRule
    from sandbox.models.profile_candidates import ProfileCandidate, ProfileCandidates, ProjectCandidate, WantedPackages
    from sandbox.models.pulls import CiCheck, CiState, CiVerdict, PullRequest, PullRequestStatus, PullState
    from sandbox.models.receipts import (
        BundleSigner,
        FoundReceipts,
        PushedReceipt,
        Receipt,
        ReceiptCheck,
        ReceiptKey,
        ReceiptQuestion,
        ReceiptRefusal,
        ReplayedCheck,
        ReplayResult,
        SignedBundle,
        SignedReceipt,
    )
    from sandbox.models.releases import (
        PendingConfirmation,
        ReleaseEntry,
        ReleaseEvent,
        ReleaseFile,
        ReleaseManifest,
        ReleaseState,
    )
    from sandbox.models.remarks import Remark, RemarkKind
    from sandbox.models.repositories import ChosenProject, ChosenSettings, Repository
    from sandbox.models.runs import (
        Cause,
        CauseKind,
        CheckRun,
        FailedTest,
        LaunchPhase,
        PhaseRun,
        PhaseVerdict,
        Pressure,
        PullRequestCommit,
        Report,
        RunSummary,
        StoppedCheck,
        StopResult,
        TestFailure,
        UncommittedChange,
        UncommittedChanges,
        Usage,
    )
    from sandbox.models.search import SearchHit, SearchQuery, SearchResult, SearchSkipped
    from sandbox.models.service_rules import ServiceLimits, ServiceRule, ServiceRun, ServiceSetup
    from sandbox.models.snapshots import CleanResult, RestoreResult, Snapshot
    from sandbox.models.spare_pool import Pool
    from sandbox.models.storage import MeasuredStorage, RepositoryStorage, Storage, StorageKind, StorageUse, TaskStorage
    from sandbox.models.suggestions import SuggestedPart, Suggestion, SuggestionKind, SuggestionNote
    from sandbox.models.task_event import TaskEvent, TaskEventKind
    from sandbox.models.tasks import Task, TaskOptions
    from sandbox.models.test_results import TestResult, TestResults
    from sandbox.models.usage_samples import UsageSample, UsageSeries
    from sandbox.models.verifications import Verification
    from sandbox.models.words import (
        SLUG_PATTERN,
        TASK_ID_PATTERN,
        Actor,
        ApprovalScope,
        ApprovalState,
        ChangeKind,
        Host,
        TaskStatus,
        TestChangeKind,
        TestOutcome,
        Verdict,
        WorkspaceKind,
    )
    from sandbox.models.workers import PlaceState, TaskPlace
    from sandbox.models.workspaces import (
        Capability,
        EntryType,
        WorkspaceEntry,
        WorkspaceRecord,
        WorkspaceRequest,
    )

__all__ = [
    "SLUG_PATTERN",
    "TASK_ID_PATTERN",
    "Actor",
    "AppliedFile",
    "ApplyResult",
    "Approval",
    "ApprovalScope",
    "ApprovalState",
    "Artifact",
    "ArtifactList",
    "ArtifactRule",
    "AttackOutcome",
    "AttackReport",
    "AttackResult",
    "AuditRecord",
    "AuditReport",
    "BackgroundOperation",
    "BackgroundRun",
    "BisectQuery",
    "Bisection",
    "BrokenEntry",
    "BundleSigner",
    "Caller",
    "Capability",
    "Cause",
    "CauseKind",
    "Change",
    "ChangeKind",
    "Check",
    "CheckComparison",
    "CheckId",
    "CheckParameter",
    "CheckRun",
    "CheckoutResult",
    "ChosenProject",
    "ChosenSettings",
    "CiCheck",
    "CiState",
    "CiVerdict",
    "ClassImpact",
    "CleanResult",
    "CloneResult",
    "CommitResult",
    "CommitVerdicts",
    "ConflictKind",
    "ConflictResolution",
    "ConflictSide",
    "Context",
    "Coverage",
    "CoverageChange",
    "CredentialInfo",
    "Delivery",
    "Diff",
    "DiffFile",
    "EgressAccess",
    "EgressRefusal",
    "EntryType",
    "Entrypoint",
    "Exploration",
    "ExploredWay",
    "FailedTest",
    "FetchResult",
    "FileClass",
    "FileContent",
    "FlakyTest",
    "FoundReceipts",
    "GateState",
    "Guest",
    "GuestKind",
    "GuestTable",
    "HistoryRun",
    "HomeEvent",
    "HomeEventKind",
    "Host",
    "ImageArchive",
    "ImageInfo",
    "Impact",
    "JournalDamage",
    "JournalEntry",
    "JournalState",
    "JudgedCommit",
    "LaunchPhase",
    "LaunchProbe",
    "LaunchReady",
    "LaunchRule",
    "LaunchSteps",
    "LaunchStop",
    "Layer",
    "LayerDetails",
    "LayerPackage",
    "LayerRule",
    "LayerSummary",
    "LayerUser",
    "Leftover",
    "LeftoverAction",
    "Limits",
    "LockedPackage",
    "LogLines",
    "LogMatch",
    "LogName",
    "LogQuery",
    "Manifest",
    "MeasuredStorage",
    "MergeConflict",
    "Model",
    "NeededCheck",
    "ObjectId",
    "PackageName",
    "PatchResult",
    "PatchedFile",
    "PendingConfirmation",
    "Permission",
    "PhaseRun",
    "PhaseVerdict",
    "PlaceState",
    "PolicyAnswer",
    "PolicyDifference",
    "PolicyRule",
    "Pool",
    "PreparedLayers",
    "Pressure",
    "Probe",
    "ProbeLevel",
    "ProfileCandidate",
    "ProfileCandidates",
    "ProjectCandidate",
    "PullRequest",
    "PullRequestCommit",
    "PullRequestStatus",
    "PullState",
    "PushResult",
    "PushedReceipt",
    "QueuedCheck",
    "Readme",
    "Receipt",
    "ReceiptCheck",
    "ReceiptKey",
    "ReceiptQuestion",
    "ReceiptRefusal",
    "Reconciliation",
    "RefusalReason",
    "RefusedArtifact",
    "RefusedEntry",
    "ReleaseEntry",
    "ReleaseEvent",
    "ReleaseFile",
    "ReleaseManifest",
    "ReleaseRule",
    "ReleaseState",
    "Remark",
    "RemarkKind",
    "RemoveResult",
    "RemovedLayers",
    "ReplayResult",
    "ReplayedCheck",
    "RepoId",
    "RepoMap",
    "Report",
    "Repository",
    "RepositoryHistory",
    "RepositoryStorage",
    "RepositoryUpdate",
    "Requirement",
    "RequirementRole",
    "Resolution",
    "RestoreResult",
    "Risk",
    "RunLog",
    "RunSummary",
    "SearchHit",
    "SearchQuery",
    "SearchResult",
    "SearchSkipped",
    "ServiceLimits",
    "ServiceRule",
    "ServiceRun",
    "ServiceSetup",
    "Sha256",
    "Signals",
    "SignedBundle",
    "SignedReceipt",
    "Snapshot",
    "SnapshotId",
    "SparseModel",
    "Status",
    "StopResult",
    "StoppedCheck",
    "Storage",
    "StorageKind",
    "StorageUse",
    "StreamName",
    "SuggestedPart",
    "Suggestion",
    "SuggestionKind",
    "SuggestionNote",
    "SyncResult",
    "SyncState",
    "Task",
    "TaskEvent",
    "TaskEventKind",
    "TaskId",
    "TaskOptions",
    "TaskPlace",
    "TaskStatus",
    "TaskStorage",
    "TestChange",
    "TestChangeKind",
    "TestFailure",
    "TestOutcome",
    "TestResult",
    "TestResults",
    "Threat",
    "ThreatState",
    "TransferredImage",
    "TreeComparison",
    "UncommittedChange",
    "UncommittedChanges",
    "Usage",
    "UsageSample",
    "UsageSeries",
    "Verdict",
    "Verification",
    "WantedPackages",
    "WorkspaceEntry",
    "WorkspaceKind",
    "WorkspaceRecord",
    "WorkspaceRequest",
]

_MODULES = {
    "approvals": "Approval",
    "artifact_lists": "Artifact ArtifactList Coverage RefusedArtifact",
    "attacks": "AttackOutcome AttackReport AttackResult Threat ThreatState",
    "audit": "AuditRecord AuditReport BrokenEntry JournalDamage JournalState",
    "background": "BackgroundOperation BackgroundRun",
    "callers": "Caller Permission",
    "changes": "Change CommitResult Diff DiffFile PushResult Status",
    "checks": "ArtifactRule Check CheckParameter LaunchProbe LaunchReady LaunchRule LaunchSteps LaunchStop Limits "
    "ReleaseRule Risk",
    "clone_results": "CloneResult RemoveResult RepositoryUpdate",
    "commit_verdicts": "BisectQuery Bisection CommitVerdicts HistoryRun JudgedCommit RepositoryHistory",
    "comparisons": "CheckComparison CoverageChange TreeComparison TestChange",
    "context": "Context Entrypoint FetchResult Readme RepoMap Signals",
    "dependencies": "LockedPackage Manifest RefusalReason RefusedEntry Requirement RequirementRole",
    "egress": "EgressAccess EgressRefusal",
    "explorations": "Exploration ExploredWay",
    "file_classes": "ClassImpact FileClass Impact NeededCheck",
    "files": "FileContent PatchResult PatchedFile",
    "flaky": "FlakyTest",
    "guest_table": "Guest GuestKind GuestTable QueuedCheck",
    "host": "CredentialInfo ImageArchive ImageInfo Probe ProbeLevel TransferredImage",
    "ids": "CheckId ObjectId PackageName RepoId Sha256 SnapshotId TaskId",
    "journal": "Delivery GateState JournalEntry",
    "layers": "Layer LayerDetails LayerPackage LayerRule LayerSummary LayerUser PreparedLayers RemovedLayers "
    "Resolution",
    "leftovers": "Leftover Reconciliation LeftoverAction",
    "logs": "LogLines LogMatch LogName LogQuery RunLog StreamName",
    "model": "Model SparseModel",
    "moves": "AppliedFile ApplyResult CheckoutResult ConflictKind ConflictResolution ConflictSide MergeConflict "
    "SyncResult SyncState",
    "policies": "PolicyAnswer PolicyDifference PolicyRule",
    "spare_pool": "Pool",
    "profile_candidates": "ProfileCandidate ProfileCandidates ProjectCandidate WantedPackages",
    "pulls": "CiCheck CiState CiVerdict PullRequest PullRequestStatus PullState",
    "releases": "PendingConfirmation ReleaseEntry ReleaseEvent ReleaseFile ReleaseManifest ReleaseState",
    "receipts": "BundleSigner FoundReceipts PushedReceipt Receipt ReceiptCheck ReceiptKey ReceiptQuestion "
    "ReceiptRefusal ReplayedCheck ReplayResult SignedBundle SignedReceipt",
    "remarks": "Remark RemarkKind",
    "repositories": "ChosenProject ChosenSettings Repository",
    "runs": "Cause CauseKind CheckRun FailedTest LaunchPhase PhaseRun PhaseVerdict Pressure PullRequestCommit Report "
    "RunSummary StopResult StoppedCheck TestFailure UncommittedChanges UncommittedChange Usage",
    "search": "SearchHit SearchQuery SearchResult SearchSkipped",
    "service_rules": "ServiceLimits ServiceRule ServiceRun ServiceSetup",
    "snapshots": "CleanResult RestoreResult Snapshot",
    "suggestions": "SuggestedPart Suggestion SuggestionKind SuggestionNote",
    "storage": "MeasuredStorage RepositoryStorage Storage StorageKind StorageUse TaskStorage",
    "usage_samples": "UsageSample UsageSeries",
    "home_event": "HomeEvent HomeEventKind",
    "task_event": "TaskEvent TaskEventKind",
    "tasks": "Task TaskOptions",
    "test_results": "TestResult TestResults",
    "verifications": "Verification",
    "words": "Actor ApprovalScope ApprovalState ChangeKind Host SLUG_PATTERN TASK_ID_PATTERN TaskStatus TestChangeKind "
    "TestOutcome Verdict WorkspaceKind",
    "workers": "PlaceState TaskPlace",
    "workspaces": "Capability EntryType WorkspaceEntry WorkspaceRecord WorkspaceRequest",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import the module that defines the name, and cache the name here."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    """All names, for help and completion, including those not imported yet."""
    return [*globals(), *_MODULE_OF.keys() - globals().keys()]
