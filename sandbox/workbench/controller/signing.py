"""Keys that sign receipts: the home's own, or one that the operator names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.receipts import ReceiptKey
from sandbox.receipts import key_files, keys
from sandbox.store import signing_keys
from sandbox.store.home import Home
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

_LOCK, _LOCK_TIMEOUT_S = "keys", 10.0


def find_signer(services: Services, path: Path | None) -> CryptoSigner:
    """The signer of a key file, else of that of the settings, else of the home's key, which is made at its first use.

    Raises: `invalid_input` for a file that is no such key; `conflict`; `internal`.
    """
    configured = services.settings.receipts.signing_key
    chosen = path or (Path(configured) if configured else None)
    return (
        _home_signer(services.home)
        if chosen is None
        else keys.load_signer(key_files.read_key_file(chosen), str(chosen))
    )


def _home_signer(home: Home) -> CryptoSigner:
    found = signing_keys.find_current(home)
    if found is None:
        with home.locked(_LOCK, _LOCK_TIMEOUT_S):
            found = signing_keys.find_current(home) or _create(home)
    return keys.load_signer(found[1], found[0].keyid)


def _create(home: Home) -> tuple[ReceiptKey, bytes]:
    private = keys.generate_private_key()
    return signing_keys.add_key(home, keys.describe_key(keys.load_signer(private, "new")), private), private


def list_keys(home: Home) -> tuple[ReceiptKey, ...]:
    """The public keys of this home, the newest last; one is made if none is in use. Raises: `conflict`, `internal`."""
    _home_signer(home)
    return signing_keys.list_keys(home)


def rotate(home: Home) -> ReceiptKey:
    """Replace the home's key; receipts that were signed before stay valid. Raises: `conflict`, `internal`."""
    with home.locked(_LOCK, _LOCK_TIMEOUT_S):
        return _create(home)[0]


def revoke(home: Home, keyid: str, reason: str) -> ReceiptKey:
    """Revoke a key by its id or at least 8 characters of its beginning. Raises: `not_found`, `conflict`, `internal`."""
    with home.locked(_LOCK, _LOCK_TIMEOUT_S):
        named = [key.keyid for key in signing_keys.list_keys(home) if len(keyid) >= 8 and key.keyid.startswith(keyid)]
        revoked = signing_keys.revoke_key(home, named[0], reason) if len(named) == 1 else None
    if revoked is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"This home has no key '{keyid[:80]}'",
            hint="`sandbox receipt keys` lists them; at least 8 characters name one.",
        )
    return revoked


def load_trusted(services: Services, paths: Sequence[Path]) -> tuple[ReceiptKey, ...]:
    """The keys of these files; without files, those of the settings, else those of the home.

    Raises: `invalid_input`, `internal`.
    """
    chosen = paths or [Path(path) for path in services.settings.receipts.trusted_keys]
    if not chosen:
        return signing_keys.list_keys(services.home)
    return key_files.read_trusted_keys(chosen)
