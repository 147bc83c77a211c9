"""Public data shapes: what the workbench takes and returns, what is stored, what `--json` prints.

Field names are the JSON contract. Every model is frozen and refuses unknown fields. A module is imported when one of
its names is first used, so that a command loads only the models it needs (docs/adr/0003).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a star exports the names that a module defines, so that each is written once, in the table
    from sandbox.models.approvals import *
    from sandbox.models.artifact_lists import *
    from sandbox.models.attacks import *
    from sandbox.models.audit import *
    from sandbox.models.background import *
    from sandbox.models.callers import *
    from sandbox.models.changes import *
    from sandbox.models.checks import *
    from sandbox.models.clone_results import *
    from sandbox.models.commit_verdicts import *
    from sandbox.models.comparisons import *
    from sandbox.models.context import *
    from sandbox.models.dependencies import *
    from sandbox.models.egress import *
    from sandbox.models.explorations import *
    from sandbox.models.file_classes import *
    from sandbox.models.files import *
    from sandbox.models.flaky import *
    from sandbox.models.guest_table import *
    from sandbox.models.home_event import *
    from sandbox.models.host import *
    from sandbox.models.ids import *
    from sandbox.models.journal import *
    from sandbox.models.layers import *
    from sandbox.models.leftovers import *
    from sandbox.models.logs import *
    from sandbox.models.model import *
    from sandbox.models.moves import *
    from sandbox.models.policies import *
    from sandbox.models.profile_candidates import *
    from sandbox.models.pulls import *
    from sandbox.models.receipts import *
    from sandbox.models.releases import *
    from sandbox.models.remarks import *
    from sandbox.models.repositories import *
    from sandbox.models.runs import *
    from sandbox.models.search import *
    from sandbox.models.service_rules import *
    from sandbox.models.snapshots import *
    from sandbox.models.spare_pool import *
    from sandbox.models.storage import *
    from sandbox.models.suggestions import *
    from sandbox.models.task_event import *
    from sandbox.models.tasks import *
    from sandbox.models.test_results import *
    from sandbox.models.usage_samples import *
    from sandbox.models.verifications import *
    from sandbox.models.words import *
    from sandbox.models.workers import *
    from sandbox.models.workspaces import *

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

__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # else a type checker takes any name for one of this package

    def __getattr__(name: str) -> Any:
        """Import the module that defines the name, and cache the name here."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return found


def __dir__() -> list[str]:
    """All names, for help and completion, including those not imported yet."""
    return [*globals(), *_MODULE_OF.keys() - globals().keys()]
