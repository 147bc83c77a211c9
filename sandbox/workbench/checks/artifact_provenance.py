"""Use-case: sign the provenance of the artifacts that a run in a clean room left."""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.models import CheckRun, Verdict
from sandbox.models.artifact_lists import Artifact
from sandbox.models.receipts import ReceiptArtifact, SignedReceipt
from sandbox.store import runs as stored_runs
from sandbox.workbench.checks.collected_artifacts import list_artifacts
from sandbox.workbench.checks.signed_receipts import ReceiptSubject, describe_run, sign_receipt
from sandbox.workbench.controller.services import Services


def export_provenance(services: Services, run_id: str, signing_key: Path | None) -> SignedReceipt:
    """Raises: as `export_run`; `not_found` for a run without artifacts; `invalid_input` for a task, and for a run that
    did not pass; `quota_exceeded` for more names than a receipt holds.
    """
    if not run_id.startswith("run-"):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Provenance is of the artifacts of one run",
            hint=f"`sandbox check runs {run_id}` lists the runs of a task.",
        )
    owner = stored_runs.find_owner(services.home, run_id)
    run = stored_runs.find_run(services.home, owner, run_id)
    if run.verdict is not Verdict.PASSED:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"{run_id} did not pass, so its artifacts have no provenance")
    check = describe_run(services, run)
    found = list_artifacts(services.home, run_id).artifacts
    if not found:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"{run_id} has no artifacts",
            hint="A profile names them in [[check.artifact]]: docs/profiles.md.",
        )
    return sign_receipt(services, _find_subject(services, owner, run, found), [check], signing_key)


def _find_subject(services: Services, owner: str, run: CheckRun, found: tuple[Artifact, ...]) -> ReceiptSubject:
    """With the commit, if it is the task's last one or its base, or the newest one of the default branch."""
    source = services.repositories.find_owner_commit(owner, allow_closed=True)
    commits = (source.commit, source.base_commit)
    commit = next((commit for commit in commits if objects.tree_of(source.git, commit) == run.tree), None)
    artifacts = tuple(ReceiptArtifact(path=each.path, sha256=each.sha256) for each in found)
    return ReceiptSubject(run.tree, commit, source.repository.remote_url, artifacts)
