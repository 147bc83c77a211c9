"""Secrets in the system keyring (the freedesktop Secret Service), through libsecret's command `secret-tool`.

The command runs as `session_bus` says. A secret is passed by stdin and returned by stdout: it is in no argument and no
environment. Source: secret-tool(1).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.session_bus import DEADLINE_S, find_bus, find_program, run_on_bus

_ABSENT = 1  # with an empty stderr


@dataclass(frozen=True)
class Keyring:
    """The keyring of the session's user. `owner`: id of the home, so that two homes never share an entry."""

    owner: str
    environ: Mapping[str, str] = field(repr=False)

    def store(self, host: str, secret: SecretStr) -> None:
        """Store or replace the secret of a host pattern, and read it back. Raises: `auth_failed`."""
        label = f"--label=Space Sandbox: {host}"
        done = self._run("store", label, *self._attributes(host), stdin=secret.get_secret_value())
        found = self.find(host) if done.returncode == 0 else None
        if found is None or found.get_secret_value() != secret.get_secret_value():
            raise _keyring_error(done.stderr)

    def find(self, host: str) -> SecretStr | None:
        """The secret of a host pattern, or None. Raises: `auth_failed` if the keyring does not answer."""
        done = self._run("lookup", *self._attributes(host))
        if done.returncode == _ABSENT and not done.stderr:
            return None
        if done.returncode != 0:
            raise _keyring_error(done.stderr)
        return SecretStr(done.stdout)

    def remove(self, host: str) -> None:
        """Remove the secret of a host pattern, if there is one. Raises: `auth_failed`."""
        self._run("clear", *self._attributes(host))
        if self.find(host) is not None:
            raise _keyring_error("the secret is still there")

    def _attributes(self, host: str) -> tuple[str, ...]:
        """The slashes prevent that a pattern is read as an option."""
        return ("application", "space-sandbox", "home", self.owner, "authority", f"//{host}")

    def _run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        program = find_program("secret-tool")
        if program is None:
            raise _keyring_error("secret-tool is not installed (Debian: libsecret-tools)")
        bus = find_bus(self.environ)
        if not bus:
            raise _keyring_error("there is no session bus")
        try:
            return run_on_bus([program, *words], bus, stdin)  # fixed words; the host pattern is our own grammar's
        except subprocess.TimeoutExpired:
            raise _keyring_error(f"no answer within {DEADLINE_S:g} s") from None


def _keyring_error(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.AUTH_FAILED,
        "The system keyring cannot read or store the secret",
        details=why.strip()[:500],
        hint="Unlock the keyring of this session, or set credentials.store = 'file'; see docs/credentials.md.",
    )
