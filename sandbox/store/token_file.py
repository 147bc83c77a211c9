"""Tokens that a person keeps in a file, or that are made there."""

from __future__ import annotations

import secrets
from pathlib import Path

from sandbox.credentials import require_private
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.home import Home, write_atomically

MIN_TOKEN_CHARS = 32
METRICS_TOKEN_FILE = "metrics-token"  # noqa: S105 - the name of a file


def read_metrics_token(home: Path, token: str) -> str:
    """Read the home's token for `/metrics`, made at first use. `token`: of agents, which opens more.

    Raises: `policy_violation` as `read_token`, and if both are the same.
    """
    path = home / METRICS_TOKEN_FILE
    found = read_token(path, create=True)
    if found == token:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The token in {path} is also that of agents, so who reads metrics could act as one",
            hint=f"Give another file by --token-file if that names {path}; else remove {path}: another one is made.",
        )
    return found


def read_token(path: Path, *, create: bool) -> str:
    """Read the token from a file. Raises: `policy_violation` if others can read it or it is too short."""
    if create and not path.exists():
        with Home(path.parent).locked("home"):
            if not path.exists():
                write_atomically(path, secrets.token_urlsafe(32).encode())
    try:
        require_private(path)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The secret in {path} cannot be read", details=str(error)
        ) from error
    if len(token) < MIN_TOKEN_CHARS:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The token in {path} has fewer than {MIN_TOKEN_CHARS} characters",
            hint=f"Make one: openssl rand -hex 32 > {path}",
        )
    return token
