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
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable_error(path, error) from error
    require_private(path)
    if len(token) < MIN_TOKEN_CHARS:
        raise _unsafe_error(path, f"its token has fewer than {MIN_TOKEN_CHARS} characters")
    return token


def require_private(path: Path) -> None:
    """Raises: `policy_violation` for a file that others can read; `invalid_input` for none."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise _unreadable_error(path, error) from error
    if stat.S_IMODE(mode) & 0o077:
        raise _unsafe_error(path, "others can read it")


def _unreadable_error(path: Path, error: Exception) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, f"The secret in {path} cannot be read", details=str(error))


def _unsafe_error(path: Path, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION, f"The secret in {path} is not safe: {why}", hint=f"chmod 600 {path}"
    )
