"""The credentials of a home: its file, the user's environment and the system keyring."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.store.home import Home
from sandbox.workbench.controller.once import Once

if TYPE_CHECKING:
    from sandbox import credentials
    from sandbox.credentials import Credential
    from sandbox.store import keyring as keyrings
    from sandbox.store.keyring import Keyring
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    credentials = LazyModule("sandbox.credentials")
    keyrings = LazyModule("sandbox.store.keyring")


@dataclass(frozen=True)
class CredentialStore:
    """The credentials of a home, as its controller finds them."""

    home: Home
    environ: Mapping[str, str] = field(repr=False)
    once_lock: threading.RLock = field(default_factory=threading.RLock)  # see `Once`

    @Once
    def entries(self) -> tuple[Credential, ...]:
        """Credentials of the file and the environment in matching order, secrets wrapped."""
        return credentials.load_credentials(self.home.root, self.environ)

    @property
    def keyring(self) -> Keyring:
        """The entries of this home in the system keyring."""
        return keyrings.Keyring(self.home.original_id, self.environ)

    def add_keyring_secret(self, entry: Credential) -> Credential:
        """The credential with its secret from the keyring. Raises: `auth_failed` if the keyring has none."""
        secret = self.keyring.find(entry.host)
        if secret is None:
            raise SandboxError(
                ErrorCode.AUTH_FAILED,
                f"The system keyring no longer has a secret for {entry.host}",
                hint=f"Store it again: sandbox credentials set {entry.host}",
            )
        return credentials.make_credential(**{**dict(entry), "secret": secret})
