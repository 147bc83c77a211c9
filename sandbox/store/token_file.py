"""Secrets that a person keeps in a file: tokens of clients, keys of signatures and services."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home, write_atomically

MIN_TOKEN_CHARS = 32


def read_token(path: Path, *, create: bool) -> str:
    """Read the token from a file. Raises: `policy_violation` if others can read it or it is too short."""
    if create and not path.exists():
        with Home(path.parent).locked("home"):
            if not path.exists():
                write_atomically(path, secrets.token_urlsafe(32).encode())
    try:
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The token file {path} cannot be read", details=str(error)
        ) from error
    if open_to_others or len(token) < MIN_TOKEN_CHARS:
        why = "others can read it" if open_to_others else f"its token has fewer than {MIN_TOKEN_CHARS} characters"
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION, f"The token file {path} is not safe: {why}", hint=f"chmod 600 {path}"
        )
    return token
