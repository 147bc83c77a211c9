"""Files of keys that the operator names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models.receipts import ReceiptKey
from sandbox.receipts.keys import MOST_KEY_BYTES, parse_trusted_keys


def read_trusted_keys(paths: Sequence[Path]) -> tuple[ReceiptKey, ...]:
    """The keys that these files say are trusted. Raises: `invalid_input`."""
    return tuple(key for path in paths for key in parse_trusted_keys(read_key_file(path), str(path)))


def read_key_file(path: Path) -> bytes:
    """The content of a file of keys, cut off past its limit. Raises: `invalid_input`."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_KEY_BYTES + 1)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The key {path} cannot be read: {error.strerror}",
            hint="Name a file that exists. Ask the signer of the receipt, who prints the public key with "
            "`sandbox receipt keys --pem`.",
        ) from error
