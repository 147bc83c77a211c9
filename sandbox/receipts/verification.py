"""Verify a receipt: its signature, its key, and that it is about what the caller asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.models.receipts import Receipt, ReceiptKey, ReceiptRefusal
from sandbox.receipts.dsse_envelope import open_envelope
from sandbox.receipts.receipt_refusals import refusal_error
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
    require_subject(receipt, expected)
    return receipt


def require_subject(receipt: Receipt, expected: Expectation) -> None:
    """Raises: `receipt_refused` if a receipt is about another tree or commit, or lacks artifacts or checks."""
    if expected.tree is not None and receipt.tree != expected.tree:
        raise refusal_error(ReceiptRefusal.WRONG_TREE, f"it is about {receipt.tree}, not {expected.tree}")
    if expected.commit is not None and receipt.commit != expected.commit:
        raise refusal_error(ReceiptRefusal.WRONG_COMMIT, f"it is about {receipt.commit}, not {expected.commit}")
    unknown = set(expected.artifacts) - {artifact.sha256 for artifact in receipt.artifacts}
    if unknown:
        raise refusal_error(ReceiptRefusal.WRONG_ARTIFACT, f"it is about no file with {', '.join(sorted(unknown))}")
    missing = set(expected.checks) - {check.id for check in receipt.checks}
    if missing:
        raise refusal_error(ReceiptRefusal.WRONG_CHECKS, f"it lacks {', '.join(sorted(missing))}")
