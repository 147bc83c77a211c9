"""Errors of a remote that refused a credential, or needs one: what is wrong with it, as far as we know."""

from __future__ import annotations

import re

from sandbox.credentials import Credential
from sandbox.errors import ErrorCode, SandboxError
from sandbox.ssh_keys import describe_key_file

_FORBIDDEN = re.compile(r"returned error: 403\b")


def require_file(credential: Credential | None, protocol: str) -> None:
    """Refuse a credential if the file that this protocol uses is gone: git would call the remote unreachable.

    Raises: `invalid_input`.
    """
    if credential is None:
        return
    what, path = ("SSH key", credential.ssh_key) if protocol == "ssh" else ("CA file", credential.ca_file)
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The {what} {path}, which the credential of this host names, cannot be read",
            details=error.strerror or "",
            hint="Put the file back, or store the credential again: `sandbox credentials list` shows its host, "
            "`sandbox credentials set HOST` replaces it.",
        ) from error


def explain_refusal(error: SandboxError, credential: Credential | None, protocol: str) -> SandboxError:
    """The error with a hint about the credential that was sent, if one was. Others are returned as they are."""
    if error.code is not ErrorCode.AUTH_FAILED or credential is None or "host key" in error.brief:
        return error
    again = "`sandbox credentials set HOST` replaces it."
    if protocol == "ssh":
        if credential.ssh_key is None:
            return error
        wrong = describe_key_file(credential.ssh_key) or "The server may not know this key for this repository."
        return error.with_hint(f"The key {credential.ssh_key} was offered. {wrong} {again}")
    if not credential.secret.get_secret_value():
        return error
    if _FORBIDDEN.search(error.details):
        why = "It may be read-only, without the scope for this, or without access to this repository."
    else:
        why = "It may be mistyped, expired or revoked."
    return error.with_hint(f"A credential was sent for this host, and refused. {why} {again}")
