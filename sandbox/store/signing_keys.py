"""The keys of a home that sign receipts.

`keys/keys.json` has every public key that the home ever had, `keys/KEYID.pem` the private key in use. A private key
that was replaced is deleted: it cannot sign any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.models.receipts import ReceiptKey
from sandbox.store.home import Home, damaged_file_error, read_content, read_json, write_atomically, write_json


def list_keys(home: Home) -> tuple[ReceiptKey, ...]:
    """All public keys, the newest last. Raises: `internal` for a damaged file."""
    path = _list_path(home)
    document = read_json(path)
    if document is None:
        return ()
    try:
        return TypeAdapter(tuple[ReceiptKey, ...]).validate_python(document.get("keys"))
    except ValidationError as error:
        raise damaged_file_error(path, describe_errors(error)) from error


def find_current(home: Home) -> tuple[ReceiptKey, bytes] | None:
    """The key in use and its private half as PEM; None if there is none."""
    usable = [key for key in list_keys(home) if key.retired_at is None and key.revoked_at is None]
    content = read_content(_private_path(home, usable[-1].keyid)) if usable else None
    return None if content is None else (usable[-1], content)


def add_key(home: Home, key: ReceiptKey, private: bytes) -> ReceiptKey:
    """Use this key from now on; the one before is retired, and its private half deleted. Returns the stored key. The
    caller holds the lock `keys`.
    """
    home.signing_keys.mkdir(mode=0o700, exist_ok=True)
    now = _now()
    new = key.model_copy(update={"created_at": now})
    before = [
        each if each.retired_at or each.revoked_at else each.model_copy(update={"retired_at": now})
        for each in list_keys(home)
    ]
    write_atomically(_private_path(home, key.keyid), private)  # first: a key in the list has its private half
    _save(home, [*before, new])
    _delete_private(home, before)
    return new


def revoke_key(home: Home, keyid: str, reason: str) -> ReceiptKey | None:
    """Revoke a key for good; None if the home never had it. The caller holds the lock `keys`."""
    keys = list_keys(home)
    found = next((key for key in keys if key.keyid == keyid), None)
    if found is None:
        return None
    revoked = found.model_copy(update={"revoked_at": found.revoked_at or _now(), "reason": reason or found.reason})
    _save(home, [revoked if key.keyid == keyid else key for key in keys])
    _delete_private(home, [revoked])
    return revoked


def _save(home: Home, keys: Sequence[ReceiptKey]) -> None:
    write_json(_list_path(home), {"keys": [key.model_dump(mode="json") for key in keys]})


def _delete_private(home: Home, keys: Sequence[ReceiptKey]) -> None:
    for key in keys:
        _private_path(home, key.keyid).unlink(missing_ok=True)


def _list_path(home: Home) -> Path:
    return home.signing_keys / "keys.json"


def _private_path(home: Home, keyid: str) -> Path:
    return home.signing_keys / f"{keyid}.pem"


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
