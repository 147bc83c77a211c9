"""Files that a receipt has to be about."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError


def hash_artifact(path: Path) -> str:
    """The hash of a file, as receipts name it. Raises: `invalid_input`."""
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The file {path} cannot be read: {error.strerror}") from error
