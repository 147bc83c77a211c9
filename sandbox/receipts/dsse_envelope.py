"""DSSE envelopes: sign a payload, and open an envelope that anyone may have written.

https://github.com/secure-systems-lab/dsse: the signature covers the payload's type and its exact bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox.lazy_module import LazyModule
from sandbox.models.receipts import ReceiptKey, ReceiptRefusal
from sandbox.receipts.keys import load_trusted_keys
from sandbox.receipts.receipt_refusals import refusal_error

if TYPE_CHECKING:
    from securesystemslib import dsse
    from securesystemslib import exceptions as library_errors
    from securesystemslib import signer as signers
    from securesystemslib.signer import CryptoSigner
else:  # loaded when a receipt is signed or verified (docs/adr/0080)
    dsse = LazyModule("securesystemslib.dsse")
    library_errors = LazyModule("securesystemslib.exceptions")
    signers = LazyModule("securesystemslib.signer")

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_BYTES = 1024**2
"""Of an envelope; a larger one is malformed."""
_MOST_SIGNATURES = 16


@dataclass(frozen=True)
class OpenedEnvelope:
    """The payload of an envelope that `key` signed."""

    payload: bytes
    key: ReceiptKey
    digest: str


def sign_payload(payload: bytes, signer: CryptoSigner) -> str:
    """The envelope as JSON text in one line."""
    envelope = dsse.Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return _write(envelope.to_dict())


def write_one_line(content: bytes) -> bytes:
    """An envelope as one line of JSON: what is one already stays as it is, byte for byte, as its digest and a bundle
    need it. No signature is verified. Raises: `receipt_refused` for what is no envelope.
    """
    line = content.strip()
    return line if len(line.splitlines()) == 1 else _write(_parse(content)).encode()


def _write(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def digest_of(envelope: str | bytes) -> str:
    """sha256 of an envelope, without white space around it."""
    content = envelope.encode() if isinstance(envelope, str) else envelope
    return f"sha256:{hashlib.sha256(content.strip()).hexdigest()}"


def open_envelope(content: bytes, trusted: Sequence[ReceiptKey]) -> OpenedEnvelope:
    """Verify the signature and return the payload. Its content is not read before.

    Raises: `receipt_refused`; `invalid_input` for a trusted key that cannot be used.
    """
    payload, signatures = read_envelope(content)
    key = _find_signer(payload, signatures, trusted)
    return OpenedEnvelope(payload, key, digest_of(content))


def read_envelope(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The payload and the signatures by the ids of their keys, of which none is verified. Raises: `receipt_refused`."""
    document = _parse(content)
    if document["payloadType"] != PAYLOAD_TYPE:
        raise refusal_error(ReceiptRefusal.DOWNGRADED, "the payload is no in-toto statement")
    payload = _decode(document["payload"])
    signatures = [_parse_signature(each) for each in _require_list(document["signatures"])]
    if len({keyid for keyid, _ in signatures}) != len(signatures):
        raise refusal_error(ReceiptRefusal.MALFORMED, "two signatures name one key")
    return payload, dict(signatures)


def _find_signer(payload: bytes, signatures: dict[str, bytes], trusted: Sequence[ReceiptKey]) -> ReceiptKey:
    """The trusted key that is not revoked and has a signature that fits."""
    named = [key for key in trusted if key.keyid in signatures]
    if not named:
        raise refusal_error(ReceiptRefusal.WRONG_KEY, f"signed by {', '.join(key[:12] for key in signatures)}")
    usable = [key for key in named if not any(k.revoked_at for k in trusted if k.keyid == key.keyid)]
    if not usable:
        raise refusal_error(ReceiptRefusal.REVOKED_KEY, f"{named[0].keyid[:12]} {named[0].reason}".strip())
    envelope = dsse.Envelope(
        payload, PAYLOAD_TYPE, {keyid: signers.Signature(keyid, sig.hex()) for keyid, sig in signatures.items()}
    )
    try:
        accepted = envelope.verify(list(load_trusted_keys(usable)), threshold=1)
    except library_errors.VerificationError as error:
        raise refusal_error(ReceiptRefusal.TAMPERED, f"the signature of {usable[0].keyid[:12]} does not fit") from error
    return next(key for key in usable if key.keyid in accepted)


def _parse(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise refusal_error(ReceiptRefusal.MALFORMED, f"more than {MOST_BYTES} bytes")
    document = parse_strict_json(content)
    if not isinstance(document, dict) or document.keys() != {"payload", "payloadType", "signatures"}:
        raise refusal_error(ReceiptRefusal.MALFORMED, "not a DSSE envelope")
    return document


def parse_strict_json(content: bytes) -> Any:
    """JSON in which no object has a name twice: two readers cannot take it differently. Raises: `receipt_refused`."""
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_require_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise refusal_error(ReceiptRefusal.MALFORMED, "not JSON, or cut off") from error


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _require_list(value: object) -> list[object]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_SIGNATURES:
        raise refusal_error(ReceiptRefusal.MALFORMED, f"an envelope has 1 to {_MOST_SIGNATURES} signatures")
    return value


def _parse_signature(value: object) -> tuple[str, bytes]:
    if not isinstance(value, dict) or value.keys() != {"keyid", "sig"} or not isinstance(value["keyid"], str):
        raise refusal_error(ReceiptRefusal.MALFORMED, "a signature has `keyid` and `sig`")
    return value["keyid"][:100], _decode(value["sig"])


def _decode(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else _raise_malformed()
    except (binascii.Error, ValueError) as error:
        raise refusal_error(ReceiptRefusal.MALFORMED, "not base64") from error


def _raise_malformed() -> bytes:
    raise refusal_error(ReceiptRefusal.MALFORMED, "a text is missing")
