"""Ed25519 keys that sign receipts, and which of them are trusted.

No other kind of key is accepted, so no algorithm can be chosen by who wrote a receipt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models.receipts import ReceiptKey

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from securesystemslib import signer as signers
    from securesystemslib.signer import CryptoSigner, SSlibKey
else:  # loaded when a receipt is signed or verified (docs/adr/0080)
    exceptions = LazyModule("cryptography.exceptions")
    serialization = LazyModule("cryptography.hazmat.primitives.serialization")
    ed25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.ed25519")
    signers = LazyModule("securesystemslib.signer")

MOST_KEY_BYTES = 1024**2


def generate_private_key() -> bytes:
    """A new key as PEM, PKCS 8, without a password."""
    return signers.CryptoSigner.generate_ed25519().private_bytes


def load_signer(content: bytes, name: str) -> CryptoSigner:
    """The signer of a private key. `name`: for the error. Raises: `invalid_input`."""
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:  # TypeError: the key has a password
        raise _bad_key_error(name, "not a private key in PEM without a password") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _bad_key_error(name, "not an Ed25519 key")
    return signers.CryptoSigner(key)


def describe_key(signer: CryptoSigner) -> ReceiptKey:
    """The public half of a signer's key."""
    raw = bytes.fromhex(signer.public_key.keyval["public"])
    public = ed25519.Ed25519PublicKey.from_public_bytes(raw)
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return ReceiptKey(keyid=signer.public_key.keyid, public_key=pem.decode("ascii"))


def parse_trusted_keys(content: bytes, name: str) -> tuple[ReceiptKey, ...]:
    """Trusted keys from a file: one public key in PEM, or the list that `sandbox receipt keys --json` prints.

    Raises: `invalid_input`.
    """
    if len(content) > MOST_KEY_BYTES:
        raise _bad_key_error(name, "too large")
    if content.lstrip().startswith(b"{"):
        try:
            return TypeAdapter(tuple[ReceiptKey, ...]).validate_python(json.loads(content)["keys"])
        except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
            raise _bad_key_error(name, "not a list of keys") from error
    if b"PRIVATE KEY-----" in content:
        raise _bad_key_error(name, "it is a private key, which only who signs may have", _PUBLIC_HALF.format(name=name))
    pem = content.decode("ascii", errors="replace")
    return (ReceiptKey(keyid=load_public_key(pem, name).keyid, public_key=pem[:2000]),)


def load_public_key(pem: str, name: str) -> SSlibKey:
    """A public key. Raises: `invalid_input` for all but Ed25519 in PEM."""
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except ValueError as error:
        raise _bad_key_error(name, "not a public key in PEM") from error
    except exceptions.UnsupportedAlgorithm as error:
        raise _bad_key_error(name, "not an Ed25519 key") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _bad_key_error(name, "not an Ed25519 key")
    return signers.SSlibKey.from_crypto(key)


def load_trusted_keys(keys: Sequence[ReceiptKey]) -> list[SSlibKey]:
    """Raises: `invalid_input` for a key with an id that is not of its public key."""
    found = [load_public_key(key.public_key, key.keyid[:12]) for key in keys]
    for key, loaded in zip(keys, found, strict=True):
        if key.keyid != loaded.keyid:
            raise _bad_key_error(key.keyid[:12], "its id is not that of its public key")
    return found


_PUBLIC_HALF = "`openssl pkey -in {name} -pubout` prints its public half, and `sandbox receipt keys --pem` the home's."
_KINDS = "`openssl genpkey -algorithm ed25519` makes a private key; `sandbox receipt keys --pem` prints the public one."


def _bad_key_error(name: str, why: str, hint: str = _KINDS) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, f"The key {name} cannot be used: {why}", hint=hint)
