"""Values of options of ssh.

ssh splits a list of files at spaces, and replaces `%h` and `${NAME}` in it (ssh_config(5), TOKENS and ENVIRONMENT
VARIABLES). A home at `/my home` had its host keys read from and written to other files.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError

_SPECIAL = ('"', "\\", "${")  # have no spelling that all versions of ssh read in the same way


def quote_path(path: Path) -> str:
    """The name of one file, as ssh reads it in `UserKnownHostsFile` and `IdentityFile`. Raises: `invalid_input`."""
    text = str(path)
    if any(special in text for special in _SPECIAL):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"ssh cannot read a file at {text!a}",
            hint='Move the file, or the sandbox home, to a path without `"`, `\\` and `${`.',
        )
    return f'"{text.replace("%", "%%")}"'
