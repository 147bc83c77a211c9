"""Verify a receipt: its signature, its key, and that it is about what the caller asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.receipts import Receipt, ReceiptKey, ReceiptQuestion, ReceiptRefusal
from sandbox.receipts.artifact_files import hash_artifact
from sandbox.receipts.dsse_envelope import digest_of, open_envelope, read_envelope
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.receipts.sigstore_bundle import read_file, verify_bundle
from sandbox.receipts.statement import read_statement


@dataclass(frozen=True)
class Expectation:
    """What a receipt has to be about; None: anything. `checks`: ids that it must have. `artifacts`: hashes of files
    that it must be about.
    """

    tree: str | None = None
    commit: str | None = None
    checks: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


def verify_receipt(content: bytes, trusted: Sequence[ReceiptKey], expected: Expectation) -> Receipt:
    """The content of a receipt that is signed by a trusted key and is about what is expected.

    It may say that checks failed: ask `passed`. Raises: `receipt_refused` with its reason; `invalid_input` for a
    trusted key that cannot be used.
    """
    opened = open_envelope(content, trusted)
    receipt = read_statement(opened.payload)
    if receipt.artifacts and receipt.keyid != opened.key.keyid:
        raise refusal_error(ReceiptRefusal.INCONSISTENT, "it names another builder than who signed it")
    receipt = receipt.model_copy(update={"digest": opened.digest, "keyid": opened.key.keyid})
    retired = opened.key.retired_at
    if retired is not None and receipt.signed_at > retired:
        raise refusal_error(ReceiptRefusal.RETIRED_KEY, f"signed at {receipt.signed_at}, retired at {retired}")
    _require_shared_keys_in_force(receipt, trusted)
    require_subject(receipt, expected)
    return receipt


def _require_shared_keys_in_force(receipt: Receipt, trusted: Sequence[ReceiptKey]) -> None:
    """A verdict of a shared cache is worth no more than the key of its entry, where that is known as revoked."""
    revoked = {key.keyid: key.reason for key in trusted if key.revoked_at is not None}
    for check in receipt.checks:
        if check.shared_by in revoked:
            why = f"{check.id} is from an entry of {check.shared_by[:12]} {revoked[check.shared_by]}".strip()
            raise refusal_error(ReceiptRefusal.REVOKED_KEY, why)


def verify_question(content: bytes, question: ReceiptQuestion, trusted: Sequence[ReceiptKey]) -> Receipt:
    """Verify a receipt as `question` asks, but for its repository: with keys, with its Sigstore bundle, or both.

    With a bundle, and no keys in the question, the receipt need not be signed by a trusted key: those only say which
    keys of shared verdicts are revoked. Raises: as `verify_receipt`; `invalid_input` for a ref without a repository;
    for a bundle `invalid_input`, `network_error` and `timeout`, too.
    """
    if question.ref is not None and question.repository is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A ref needs the repository that it is of",
            hint="Name the repository as well: --repo URL.",
        )
    hashes = tuple(map(hash_artifact, question.artifacts))
    expected = Expectation(question.tree, question.commit, question.checks, hashes)
    if question.bundle is None:
        return verify_receipt(content, trusted, expected)
    if question.vouched_by is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A bundle needs the name of its expected signer",
            hint="Name the identity and its issuer: --identity and --issuer.",
        )
    bundle = read_file(question.bundle)
    verify_bundle(content, bundle, question.vouched_by, question.trust_config)
    if question.keys:
        receipt = verify_receipt(content, trusted, expected)
    else:
        receipt = read_unverified(content)
        _require_shared_keys_in_force(receipt, trusted)
        require_subject(receipt, expected)
    return receipt.model_copy(update={"vouched_by": question.vouched_by})


def read_unverified(content: bytes) -> Receipt:
    """The content of a receipt that anyone may have written. Raises: `receipt_refused` for what is none."""
    payload, signatures = read_envelope(content)
    receipt = read_statement(payload)
    return receipt.model_copy(update={"digest": digest_of(content), "keyid": next(iter(signatures))})


def require_subject(receipt: Receipt, expected: Expectation) -> None:
    """Raises: `receipt_refused` if a receipt is about another tree or commit, or lacks artifacts or checks."""
    if expected.tree is not None and receipt.tree != expected.tree:
        raise refusal_error(ReceiptRefusal.WRONG_TREE, f"it is about {receipt.tree}, not {expected.tree}")
    if expected.commit is not None and receipt.commit != expected.commit:
        raise refusal_error(ReceiptRefusal.WRONG_COMMIT, f"it is about {receipt.commit}, not {expected.commit}")
    unknown = set(expected.artifacts) - {artifact.sha256 for artifact in receipt.artifacts}
    if unknown:
        raise refusal_error(ReceiptRefusal.WRONG_ARTIFACT, f"it is about no file with {', '.join(sorted(unknown))}")
    missing = set(expected.checks) - {check.id for check in receipt.checks if not check.definition.arguments}
    if missing:
        names = ", ".join(sorted(missing))
        raise refusal_error(ReceiptRefusal.WRONG_CHECKS, f"it lacks {names}, or only a part of it ran")
