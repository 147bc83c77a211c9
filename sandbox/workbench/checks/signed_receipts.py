"""Use-cases: export the verdicts of clean rooms as signed receipts, verify a receipt, and repeat what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects
from sandbox.models import CheckRun, RunSummary
from sandbox.models.receipts import (
    Receipt,
    ReceiptArtifact,
    ReceiptCheck,
    ReceiptQuestion,
    ReceiptRefusal,
    ReplayedCheck,
    ReplayResult,
    SignedBundle,
    SignedReceipt,
)
from sandbox.receipts.dsse_envelope import MOST_BYTES, digest_of, sign_payload
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.receipts.sigstore_bundle import sign_bundle
from sandbox.receipts.statement import PRODUCT_VERSION, describe_check, is_public, now, write_statement
from sandbox.receipts.verification import Expectation, read_unverified, require_subject, verify_question
from sandbox.store import runs as stored_runs
from sandbox.store.bindings import find_binding
from sandbox.store.records import find_repository, find_task
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import all_passed
from sandbox.workbench.checks.collected_artifacts import list_artifacts
from sandbox.workbench.checks.gate import TreeGate, describe_verification
from sandbox.workbench.checks.shared_cache import describe_shared_run
from sandbox.workbench.checks.verify import run_url
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.controller.signing import find_signer, load_trusted
from sandbox.workbench.repositories import clone


def export_task(services: Services, task_id: str, signing_key: Path | None) -> SignedReceipt:
    """A receipt of all checks of a task on the tree of its last commit, from the verdict cache.

    Raises: `not_found`; `gate_closed` if a check has no verdict there; as `TreeGate.verdicts` and `find_signer`.
    """
    task = find_task(services.home, task_id)
    gate = TreeGate(services, task)
    known = gate.verdicts
    missing = [name for name, run in known.runs.items() if run is None]
    if missing or not known.runs:
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            f"The tree of {task_id} has no verdict of {', '.join(missing) or 'any check'}",
            hint=describe_verification(services, task_id, known.runs),
        )
    checks = [describe_check(known.bindings[name], run) for name, run in known.runs.items() if run is not None]
    source = find_repository(services.home, task.repo_id).remote_url
    return sign_receipt(services, ReceiptSubject(gate.tree, task.head_commit, source), checks, signing_key)


def export_run(services: Services, run_id: str, signing_key: Path | None) -> SignedReceipt:
    """A receipt of one run in a clean room, whatever its verdict.

    Raises: `not_found`, also if what it was bound to is not kept; `invalid_input` for a run in a task's own files.
    """
    owner = stored_runs.find_owner(services.home, run_id)
    run = stored_runs.find_run(services.home, owner, run_id)
    source = find_repository(services.home, owner).remote_url if not owner.startswith("task-") else ""
    return sign_receipt(services, ReceiptSubject(run.tree, None, source), [describe_run(services, run)], signing_key)


def export_summary(services: Services, summary: RunSummary, signing_key: Path | None) -> SignedReceipt:
    """A receipt of what `run` answered, without checks that came after one that failed in their room.

    Raises: `not_found` if no check ran, or what another run was bound to is not kept.
    """
    if not summary.runs:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            "No check ran, so there is no verdict to sign",
            hint="Without --changed-since all checks of the profile run.",
        )
    proven = _list_proven(services, summary.runs)
    checks, asked = [describe_run(services, run) for run in proven], {run.check_id for run in proven}
    left_out = (*summary.left_out, *(run.check_id for run in summary.runs if run.check_id not in asked))
    included = summary.uncommitted is not None and summary.uncommitted.included
    subject = ReceiptSubject(summary.tree, None if included else summary.commit, summary.repository.remote_url)
    return sign_receipt(services, subject, checks, signing_key, left_out)


def _list_proven(services: Services, runs: Sequence[CheckRun]) -> list[CheckRun]:
    """Those that have receipts: not what a check did after one that failed in its room, as no verdict is kept of it."""

    def is_proven(number: int, run: CheckRun) -> bool:
        return all_passed(runs[:number]) or bool(run.shared_key) or find_binding(services.home, run) is not None

    return [run for number, run in enumerate(runs) if is_proven(number, run)]


@dataclass(frozen=True)
class ReceiptSubject:
    """What a receipt is about. `source`: URL of the repository, left out if it is a path of this host."""

    tree: str
    commit: str | None
    source: str
    artifacts: tuple[ReceiptArtifact, ...] = ()


def describe_run(services: Services, run: CheckRun) -> ReceiptCheck:
    """What a receipt says about a run. Raises: `invalid_input` for a run in a task's own files; `not_found` if what it
    was bound to is not kept; for a verdict of the shared cache as `describe_shared_run`.
    """
    if not run.clean_room:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{run.run_id} ran in the files of a task: only a clean room gives receipts",
            hint="Commit, then `sandbox verify TASK`.",
        )
    if run.shared_key:
        return describe_shared_run(services, run)
    binding = find_binding(services.home, run)
    if binding is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"What the verdict of '{run.check_id}' depends on is not kept",
            details="It is gone with the run's log, or the run is no evidence for the gate: it came after a check that "
            "failed in its room or beside a failure, or was repeated until it passed.",
            hint="Run the checks again with --no-cache.",
        )
    return describe_check(binding, run)


def sign_receipt(
    services: Services,
    subject: ReceiptSubject,
    checks: Sequence[ReceiptCheck],
    signing_key: Path | None,
    left_out: Sequence[str] = (),
) -> SignedReceipt:
    """Raises: as `find_signer`; `quota_exceeded` for a receipt that is too large to be read."""
    signer = find_signer(services, signing_key)
    receipt = Receipt(
        tree=subject.tree,
        commit=subject.commit,
        source=subject.source if is_public(subject.source) else "",
        checks=_in_order(checks),
        left_out=tuple(left_out),
        artifacts=subject.artifacts,
        product_version=PRODUCT_VERSION,
        signed_at=now(),
        keyid=signer.public_key.keyid,
    )
    envelope = sign_payload(write_statement(receipt), signer)
    if len(envelope) > MOST_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"The receipt would have {len(envelope):,} bytes, and at most {MOST_BYTES:,} are read",
            hint="Let the profile collect fewer artifacts, such as one archive of them.",
        )
    return SignedReceipt(receipt=receipt.model_copy(update={"digest": digest_of(envelope)}), envelope=envelope)


def _in_order(checks: Sequence[ReceiptCheck]) -> tuple[ReceiptCheck, ...]:
    """Each check after the one that it follows in its room; otherwise as given."""
    left, found = list(checks), list[ReceiptCheck]()
    while left:
        waiting = {check.key for check in left}
        found += [check for check in left if check.after not in waiting]
        left = [check for check in left if check.after in waiting]
    return tuple(found)


def verify(services: Services, content: bytes, question: ReceiptQuestion) -> Receipt:
    """The content of a receipt that holds.

    Raises: `receipt_refused`; as `load_trusted`; for a repository as `clone`.
    """
    trusted = load_trusted(services, question.keys)
    question = question.model_copy(update={"trust_config": _find_trust_config(services, question.trust_config)})
    receipt = verify_question(content, question, trusted)
    if question.repository is not None:
        require_subject(receipt, Expectation(_find_tree(services, receipt, question.repository, question.ref)))
        if question.ref is None and receipt.commit is not None:
            _require_on_remote(services, question.repository, receipt.commit)
    return receipt


def _find_trust_config(services: Services, named: Path | None) -> Path | None:
    """The file that the caller names, else that of the settings; None: the public Sigstore instance."""
    configured = services.settings.receipts.trust_config
    return named or (Path(configured) if configured else None)


def sign(services: Services, content: bytes, identity_token: Path | None, trust_config: Path | None) -> SignedBundle:
    """The Sigstore bundle of a receipt, in the name of this job's identity.

    Raises: `receipt_refused` for what is no receipt; as `sign_bundle`.
    """
    read_unverified(content)
    return sign_bundle(content, identity_token, _find_trust_config(services, trust_config))


def _require_on_remote(services: Services, repository: str, commit: str) -> None:
    """The cache clone also has commits of tasks that were never pushed, which the remote does not have."""
    git = clone.update_cache(services, repository).git
    if git.run("rev-list", "--max-count=1", commit, "--not", "--remotes", "--tags").strip():
        why = f"no branch or tag of the repository has commit {commit}"
        raise refusal_error(ReceiptRefusal.WRONG_COMMIT, why)


def _find_tree(services: Services, receipt: Receipt, repository: str, ref: str | None) -> str:
    wanted = receipt.commit if ref is None else ref
    if wanted is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "The receipt names no commit", hint="Name a branch, tag or commit with --ref."
        )
    updated = clone.update_cache(services, repository)
    try:
        return objects.tree_of(updated.git, clone.fetch_commit(services, updated, wanted))
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND or ref is not None:
            raise
        raise refusal_error(ReceiptRefusal.WRONG_COMMIT, f"the repository has no commit {wanted}") from error


def replay(services: Services, content: bytes, question: ReceiptQuestion, watch: Watch) -> ReplayResult:
    """Run the checks of a receipt here, on its tree, without cached verdicts, and compare.

    Raises: `receipt_refused`; `invalid_input` if no repository is known; as `run_url`.
    """
    receipt = verify(services, content, question.model_copy(update={"repository": None, "ref": None}))
    repository = receipt.source if question.repository is None else question.repository
    if not repository or (receipt.commit is None and question.ref is None):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The receipt does not say where its tree is",
            hint="Name the repository with --repo, and a branch, tag or commit with --ref.",
        )
    require_subject(receipt, Expectation(_find_tree(services, receipt, repository, question.ref)))
    options = VerifyOptions(cache=False, keep_going=True, runtime=services.runtime)
    ids, ref = [check.id for check in receipt.checks], receipt.commit if question.ref is None else question.ref
    summary = run_url(services, (repository, ref or "HEAD"), ids, None, watch, options)
    again = {run.check_id: describe_run(services, run) for run in _list_proven(services, summary.runs)}
    checks = tuple(_compare(before, again.get(before.id)) for before in receipt.checks)
    other = _find_other_artifacts(services, receipt, summary)
    agrees = summary.tree == receipt.tree and not other and all(check.now is check.before for check in checks)
    return ReplayResult(receipt=receipt, checks=checks, agrees=agrees, other_artifacts=other)


def _find_other_artifacts(services: Services, receipt: Receipt, summary: RunSummary) -> tuple[str, ...]:
    """The paths of a receipt's artifacts that its check did not leave here, or with another content."""
    run_ids = [run.run_id for run in summary.runs if run.check_id == receipt.checks[0].id and receipt.artifacts]
    here = {each.path: each.sha256 for run_id in run_ids for each in list_artifacts(services.home, run_id).artifacts}
    return tuple(each.path for each in receipt.artifacts if here.get(each.path) != each.sha256)


_QUESTION = (
    "definition",
    "image_digest",
    "layers",
    "policy",
    "runtime",
    "platform",
    "submodules",
    "lfs",
    "submodules_with_lfs",
    "compiler_cache",
    "key_version",
)


def _compare(before: ReceiptCheck, now: ReceiptCheck | None) -> ReplayedCheck:
    if now is None:
        return ReplayedCheck(id=before.id, before=before.verdict, now=None, same_question=False)
    differences = tuple(name for name in _QUESTION if getattr(before, name) != getattr(now, name))
    return ReplayedCheck(
        id=before.id,
        before=before.verdict,
        now=now.verdict,
        same_question=before.key == now.key,
        differences=differences,
    )
