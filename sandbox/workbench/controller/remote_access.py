"""Access to remotes: which URLs are allowed, and the credential, limits and deadline for one remote."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.shutdown import Shutdown
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.store.home import Home
from sandbox.workbench.controller.credential_store import CredentialStore

if TYPE_CHECKING:
    from sandbox import credentials, remotes
    from sandbox.config import Settings
    from sandbox.credentials import Credential
    from sandbox.git import credential_helper, transport
    from sandbox.models import Host
    from sandbox.remotes import Remote
    from sandbox.workbench.controller import protocol_choice
else:  # loaded at first use: a listing needs none of them (docs/adr/0003)
    credentials = LazyModule("sandbox.credentials")
    remotes = LazyModule("sandbox.remotes")
    credential_helper = LazyModule("sandbox.git.credential_helper")
    transport = LazyModule("sandbox.git.transport")
    protocol_choice = LazyModule("sandbox.workbench.controller.protocol_choice")

_log = logging.getLogger(__name__)
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class TransferCallbacks:
    """What a long transfer reports to, and what ends it. `progress`: see `Surface`."""

    progress: Callable[[str], None] | None
    shutdown: Shutdown


@dataclass(frozen=True)
class RemoteConnector:
    """The remotes that a controller may use, and its access to them. `allow_file`: of the surface. `protocols_used`: by
    id of the remote, what its last successful command went over.
    """

    home: Home
    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    credentials: CredentialStore
    allow_file: bool
    transfers: TransferCallbacks
    protocols_used: dict[str, str] = field(default_factory=dict, compare=False)

    def parse(self, url: str) -> Remote:
        """Parse a remote URL under the rules of this surface and the settings. Raises: `invalid_input`."""
        ours = self.settings.remotes
        allow_file = self.allow_file or ours.allow_file
        try:
            return remotes.parse_remote(url, allow_file=allow_file, allow_http=ours.allow_http, forges=self._forges())
        except SandboxError as error:
            # Only for a person: an agent that the settings let use local paths would learn which directories there are.
            if self.allow_file and not url.startswith("-") and os.path.isdir(url):  # noqa: PTH112 - never raises
                raise error.with_hint(f"For a directory of this host write a path: ./{url}") from error
            raise

    def parse_registered(self, url: str) -> Remote:
        """Parse the URL of a registered repository, which was allowed then; it is not used for access."""
        return remotes.parse_remote(url, allow_file=True, allow_http=True, forges=self._forges())

    def _forges(self) -> dict[str, Host]:
        ours = self.settings.remotes
        return remotes.map_hosts({h.setting: getattr(ours, h.setting) for h in remotes.FORGE_HOSTS.values()})

    def get_access(self, remote: Remote) -> transport.RemoteAccess:
        """What git may use to reach one remote over the network: its credential, limits and deadline.

        Raises: `auth_failed` if the keyring does not return the secret.
        """
        port = remote.port or {"https": 443, "ssh": 22}.get(remote.protocol)
        credential = credentials.find_credential(self.credentials.entries, remote.hostname, port, remote.protocol)
        if credential is not None and credential.keyring and remote.protocol == "https":
            credential = self.credentials.add_keyring_secret(credential)
        return transport.RemoteAccess(
            remote,
            credential,
            self.home.known_hosts,
            self.environ,
            progress=self.transfers.progress,
            timeout_s=self.settings.remotes.timeout_s,
            git=self.settings.git.executable,
            max_fetch_bytes=self.settings.remotes.max_fetch_bytes,
            max_memory_bytes=self.settings.remotes.max_fetch_memory_bytes,
            shutdown=self.transfers.shutdown,
            proxy=self.settings.remotes.proxy_of(remote.hostname) or "",
        )

    def run_with_access(self, remote: Remote, action: Callable[[transport.RemoteAccess], _ResultT]) -> _ResultT:
        """Run `action` on a remote. On a forge that serves https and ssh, the protocol that we have a credential for
        goes first; the other one is tried if the forge refuses, and we have a credential for that too.

        Raises: as `get_access`, and what `action` raises at the first try.
        """
        refusals: list[SandboxError] = []
        for route in self._list_routes(remote):
            if route.protocol != remote.protocol:
                self._say(f"{remote.hostname}: using {route.protocol} instead of {remote.protocol}")
            try:
                result = self.run_over(route, action)
            except SandboxError as error:
                if error.code not in {ErrorCode.AUTH_FAILED, ErrorCode.REMOTE_NOT_FOUND}:
                    raise
                refusals.append(error)
                continue
            self.protocols_used[remote.id] = route.protocol
            return result
        if len(refusals) > 1:
            also = f"{refusals[0].details}\nthe other protocol: {refusals[1].brief}"
            raise refusals[0].with_details(also.strip()) from refusals[1]
        raise refusals[0]

    def find_other_protocol(self, remote: Remote) -> str:
        """What the last command went over, if that is not the protocol of the URL; else ''."""
        used = self.protocols_used.get(remote.id, "")
        return used if used != remote.protocol else ""

    def _list_routes(self, remote: Remote) -> list[Remote]:
        """The remote over the protocols to try, in this order."""
        other = remotes.swap_protocol(remote)
        if other is None:
            return [remote]
        entries, host = self.credentials.entries, remote.hostname
        key = credentials.find_credential(entries, host, 22, "ssh") is not None
        secret = credentials.find_secret(entries, host) is not None
        agent = bool(self.environ.get("SSH_AUTH_SOCK"))
        return protocol_choice.order_routes(remote, other, key=key, agent=agent, secret=secret)

    def _say(self, line: str) -> None:
        _log.info(line)
        if self.transfers.progress:
            self.transfers.progress(line)

    def run_over(self, remote: Remote, action: Callable[[transport.RemoteAccess], _ResultT]) -> _ResultT:
        """Run `action` over one protocol. If the remote refuses it and we have no secret, run it once more with the
        secret of the user's credential helper.
        """
        access = self.get_access(remote)
        try:
            return action(access)
        except SandboxError as error:
            if error.code is ErrorCode.AUTH_FAILED and remote.protocol == "http":
                raise _unencrypted_error(error) from error
            known = access.credential is not None and bool(access.credential.secret.get_secret_value())
            if error.code is not ErrorCode.AUTH_FAILED or remote.protocol != "https" or known:
                raise
            found = self._ask_credential_helper(remote.url.split("/")[2], access.credential)
            if found is None:
                raise
        return action(replace(access, credential=found))

    def find_forge_credential(self, remote: Remote) -> Credential | None:
        """The credential for the API of a remote's forge: the one for https to its host, also if the remote is ssh.

        Raises: `auth_failed` if the keyring does not return the secret.
        """
        port = remote.port if remote.protocol == "https" else None
        found = credentials.find_credential(self.credentials.entries, remote.hostname, port or 443)
        if found is not None and found.keyring:
            found = self.credentials.add_keyring_secret(found)
        if found is not None and found.secret.get_secret_value():
            return found
        return self._ask_credential_helper(f"{remote.hostname}:{port}" if port else remote.hostname, found)

    def _ask_credential_helper(self, authority: str, configured: Credential | None) -> Credential | None:
        """The credential of the user's git credential helper for a host, with the CA file that we have for it."""
        found = credential_helper.ask_helper(authority, self.environ, self.settings.git.executable)
        if found is None:
            return None
        return found.model_copy(update={"ca_file": configured.ca_file if configured else None})


def _unencrypted_error(error: SandboxError) -> SandboxError:
    return SandboxError(
        ErrorCode.AUTH_FAILED,
        "The remote refused us, and no credential is sent over http",
        details=error.details,
        hint="A credential never goes over the network without encryption: use an https:// or ssh:// URL.",
    )
