"""Connect to the Temporal server of a cluster: encrypted, unless it is on this host."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client
from temporalio.service import TLSConfig

from sandbox.config import ClusterSettings
from sandbox.credentials import require_private
from sandbox.errors import ErrorCode, SandboxError
from sandbox.remotes import is_loopback
from sandbox.store.token_file import read_token

CONNECT_S = 10.0


@dataclass(frozen=True)
class ServerAccess:
    """How the server is spoken to. `ca`: PEM, None: the system's authorities. `certificate`, `key`: ours, PEM."""

    tls: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ClusterAddress:
    """`address`: host and port of the Temporal server. `name`: of the cluster; those that share a namespace have
    different ones. `lost_after_s`: how long a worker may be silent before its tasks go elsewhere. `publisher_s`: how
    long a controller that publishes may not take an operation.
    """

    address: str
    namespace: str = "default"
    name: str = "space-sandbox"
    lost_after_s: float = 10.0
    access: ServerAccess = ServerAccess()
    publisher_s: float = 30.0


def find_address(settings: ClusterSettings) -> ClusterAddress:
    """What the settings say, with the files that they name.

    Raises: `invalid_input` for a file that cannot be read, for a certificate without its key, and for one of these
    without TLS; `policy_violation` for a key that others can read, or an API key that would be sent without TLS.
    """
    tls = settings.tls == "on" or (settings.tls == "auto" and not _is_on_this_host(settings.address))
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    if bool(settings.certificate_file) != bool(settings.key_file):
        raise SandboxError(
            ErrorCode.INVALID_INPUT, "cluster.certificate_file and cluster.key_file belong together", hint="Set both."
        )
    if not tls and any(files):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The cluster has certificates and no TLS",
            details=f"cluster.tls is {settings.tls!r} and the address is {settings.address}",
            hint="Set cluster.tls = 'on', or remove the files.",
        )
    if not tls and settings.api_key_file:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "The API key of the cluster would be sent without TLS",
            hint="Set cluster.tls = 'on', or remove cluster.api_key_file.",
        )
    api_key = read_token(settings.api_key_file, create=False) if settings.api_key_file else None
    ca, certificate, key = map(_read, files)
    if settings.key_file:
        require_private(settings.key_file.expanduser())
    access = ServerAccess(tls, ca, certificate, key, api_key)
    return ClusterAddress(settings.address, settings.namespace, settings.name, settings.lost_after_s, access)


def _is_on_this_host(address: str) -> bool:
    return is_loopback(address.rpartition(":")[0].removeprefix("[").removesuffix("]"))


def _read(path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.expanduser().read_bytes()
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The file {path} of the cluster cannot be read", details=error.strerror or ""
        ) from error


async def connect_client(place: ClusterAddress) -> Client:
    """Raises: `network_error`."""
    access = place.access
    tls = TLSConfig(access.ca, None, access.certificate, access.key) if access.tls else False
    try:
        connecting = Client.connect(place.address, namespace=place.namespace, tls=tls, api_key=access.api_key)
        return await asyncio.wait_for(connecting, CONNECT_S)
    except (RuntimeError, TimeoutError) as error:
        spoken = "with TLS" if access.tls else "without TLS"
        raise SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"No Temporal server answers at {place.address} {spoken}",
            details=str(error)[:500],
            hint="Start it, or correct cluster.address, or how it is spoken to: cluster.tls, cluster.ca_file.",
        ) from error
