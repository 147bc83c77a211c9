"""The error for a receipt that is refused."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.receipts import ReceiptRefusal

_BRIEFS = {
    ReceiptRefusal.MALFORMED: "This is not a whole receipt",
    ReceiptRefusal.TAMPERED: "The receipt was changed after it was signed",
    ReceiptRefusal.WRONG_KEY: "No signature of the receipt is by a trusted key",
    ReceiptRefusal.REVOKED_KEY: "The key that signed the receipt is revoked",
    ReceiptRefusal.RETIRED_KEY: "The receipt was signed after its key was retired",
    ReceiptRefusal.WRONG_IDENTITY: "The bundle is signed by another identity",
    ReceiptRefusal.WRONG_BUNDLE: "The bundle does not vouch for this receipt",
    ReceiptRefusal.DOWNGRADED: "The receipt has another type or version than this program accepts",
    ReceiptRefusal.INCONSISTENT: "The parts of the receipt contradict each other",
    ReceiptRefusal.WRONG_TREE: "The receipt is about another tree",
    ReceiptRefusal.WRONG_COMMIT: "The receipt is about another commit",
    ReceiptRefusal.WRONG_ARTIFACT: "The receipt is not about this file",
    ReceiptRefusal.WRONG_CHECKS: "The receipt lacks a check",
}


def refusal_error(reason: ReceiptRefusal, details: str) -> SandboxError:
    """The error `receipt_refused` with its reason."""
    return SandboxError(
        ErrorCode.RECEIPT_REFUSED,
        _BRIEFS[reason],
        details=details[:500],
        hint=f"docs/receipts.md explains `{reason.value}`.",
        reason=reason.value,
    )
