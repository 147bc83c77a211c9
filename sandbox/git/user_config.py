"""Read the user's own git configuration: `safe.directory` and the identity for commits. No repository is read.

Only this module and `sandbox.git.credential_helper` read it. Sources: git-config(1), safe.directory and user.*;
git-commit(1), COMMIT INFORMATION.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from sandbox.errors import SandboxError
from sandbox.git.process import SAFE_PATH, git_executable
from sandbox.lazy_dataclass import dataclass

DEADLINE_S = 10.0
_INHERITED_VARIABLES = ("HOME", "XDG_CONFIG_HOME")
_WHICH_FILES = (*_INHERITED_VARIABLES, "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_IDENTITY = r"^(user|author|committer)\.(name|email)$"


@dataclass(frozen=True)
class PersonIdentity:
    """A name and an e-mail address as configured; empty: not configured."""

    name: str
    email: str


@dataclass(frozen=True)
class OperatorIdentity:
    """The author and committer that plain git would use."""

    author: PersonIdentity
    committer: PersonIdentity


def trusts_every_directory(environ: Mapping[str, str], executable: str = "") -> bool:
    """Whether the system's or the user's configuration has `safe.directory = *`. False if git fails."""
    answer = _read_config(("--get-all", "safe.directory"), environ, _INHERITED_VARIABLES, executable)
    trusted = False
    for value in answer.split(b"\0")[:-1]:
        trusted = value == b"*" or (trusted and value != b"")  # an empty value resets the list
    return trusted


def find_operator_identity(environ: Mapping[str, str], executable: str = "") -> OperatorIdentity:
    """The identity from the environment, then the user's and the system's configuration. Never from the host name."""
    values: dict[str, str] = {}
    for record in _read_config(("--get-regexp", _IDENTITY), environ, _WHICH_FILES, executable).split(b"\0")[:-1]:
        key, _, value = record.decode("utf-8", errors="replace").partition("\n")
        values[key] = value

    def read_identity(role: str) -> PersonIdentity:
        name, email = environ.get(f"GIT_{role.upper()}_NAME"), environ.get(f"GIT_{role.upper()}_EMAIL")
        return PersonIdentity(
            name or values.get(f"{role}.name") or values.get("user.name", ""),
            email or values.get(f"{role}.email") or values.get("user.email") or environ.get("EMAIL", ""),
        )

    return OperatorIdentity(read_identity("author"), read_identity("committer"))


def _read_config(
    question: Sequence[str], environ: Mapping[str, str], passed_on: Sequence[str], executable: str
) -> bytes:
    """Output of `git config --null`; empty if git fails."""
    environment = {name: environ[name] for name in passed_on if environ.get(name)} | {"PATH": SAFE_PATH}
    try:
        return subprocess.run(  # noqa: S603 - fixed argv; the git directory does not exist: no repository is found
            [git_executable(executable), "--git-dir=/nonexistent", "config", "--null", *question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            cwd="/",
            timeout=DEADLINE_S,
            check=False,
        ).stdout
    except (SandboxError, subprocess.TimeoutExpired):
        return b""
