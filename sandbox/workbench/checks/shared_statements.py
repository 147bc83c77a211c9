"""Statements about what is in a shared store, each signed by the home that put it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.models.model import Model
from sandbox.models.receipts import ReceiptKey, ReceiptRefusal
from sandbox.receipts.dsse_envelope import open_envelope, parse_strict_json
from sandbox.receipts.receipt_refusals import refusal_error

_StatementT = TypeVar("_StatementT", bound=Model)


def open_statement(content: bytes, trusted: Sequence[ReceiptKey], kind: type[_StatementT]) -> _StatementT:
    """What a trusted key signed. What it is about is for the caller to compare.

    Raises: `receipt_refused`, also for a retired key: no time of the signature that could be believed is known.
    """
    opened = open_envelope(content, trusted)
    if opened.key.retired_at is not None:
        raise refusal_error(ReceiptRefusal.RETIRED_KEY, opened.key.keyid[:12])
    try:
        return kind.model_validate(parse_strict_json(opened.payload))
    except ValidationError as error:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, describe_errors(error)) from error
