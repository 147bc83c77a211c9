"""Which forge a repository is on, how to connect to it, and the web page for a person if we cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Project
from sandbox.forges.table import FORGE_ROWS, ForgeRow, compare_url
from sandbox.lazy_module import LazyModule
from sandbox.remotes import Remote, explain_unknown_host, is_loopback
from sandbox.workbench.controller.remote_access import RemoteConnector

if TYPE_CHECKING:
    from sandbox.config import RemoteSettings
    from sandbox.forges import redacted_forge
else:
    redacted_forge = LazyModule("sandbox.forges.redacted_forge")


@contextmanager
def connect_forge(remote: Remote, project: Project) -> Iterator[Forge]:
    """Connect to the forge of a remote's project; the connection is closed at the end. Its answers lose our token."""
    forge = redacted_forge.RedactedForge(_row_of(remote).connect(project), project.credential)
    try:
        yield forge
    finally:
        forge.close()


def has_forge(remote: Remote) -> bool:
    """Whether there is an adapter for the remote's host."""
    return remote.host in FORGE_ROWS


def require_forge(remote: Remote, head: str, base: str) -> None:
    """Raises: `forge_unsupported`, see `unsupported_forge`."""
    if not has_forge(remote):
        raise unsupported_forge(remote, head, base)


def _row_of(remote: Remote) -> ForgeRow:
    row = FORGE_ROWS.get(remote.host)
    if row is None:
        raise SandboxError(ErrorCode.FORGE_UNSUPPORTED, _no_adapter(remote), hint=explain_unknown_host())
    return row


def unsupported_forge(remote: Remote, head: str, base: str, page: str | None = None) -> SandboxError:
    """The error, with the page where a person can open the pull request if known. `page`: as named by the server."""
    page = page or compare_url(remote, head, base)
    return SandboxError(
        ErrorCode.FORGE_UNSUPPORTED,
        _no_adapter(remote),
        details=f"branch {head}, into {base}",
        hint=f"Open it in a browser: {page}" if page else _explain_no_page(remote),
    )


def _explain_no_page(remote: Remote) -> str:
    if remote.protocol == "file":
        return "To open one, clone the repository by the URL of its forge."
    return explain_unknown_host()


def _no_adapter(remote: Remote) -> str:
    place = remote.hostname if remote.protocol != "file" else "A local path"
    return f"{place} is not a supported forge, so no pull request can be opened"


def find_project(remotes: RemoteConnector, remote: Remote) -> Project:
    """The project of a remote on its forge, with its credential.

    Raises: `auth_failed` without a token; `invalid_input` for an unusable `remotes.api_urls`.
    """
    row = _row_of(remote)
    credential = remotes.find_forge_credential(remote)
    if credential is None:
        raise SandboxError(
            ErrorCode.AUTH_FAILED,
            f"There is no token for {remote.hostname}",
            hint=f"Store one: sandbox credentials set {remote.hostname} (required scopes: docs/pull-requests.md).",
        )
    web = f"https://{_authority(remote)}"
    api_url = _configured_api_url(remotes.settings.remotes, remote) or row.api_url(remote.hostname, web)
    return Project(
        hostname=remote.hostname,
        path=row.project_path(remote, api_url),
        api_url=api_url,
        web_url=web,
        credential=credential,
        proxy=remotes.settings.remotes.proxy_of(remote.hostname),
    )


def _authority(remote: Remote) -> str:
    """Host, and the port of an https URL. The port of an ssh URL belongs to another service."""
    host = f"[{remote.hostname}]" if ":" in remote.hostname else remote.hostname
    return f"{host}:{remote.port}" if remote.port and remote.protocol == "https" else host


def _configured_api_url(ours: RemoteSettings, remote: Remote) -> str:
    configured = {name.lower(): url for name, url in ours.api_urls.items()}.get(remote.hostname, "").rstrip("/")
    if configured and not _is_usable(configured, allow_http=ours.allow_http):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"remotes.api_urls: {configured!r} cannot be used",
            hint="Use https://HOST/PATH, without a user name, query or fragment.",
        )
    return configured


def _is_usable(url: str, *, allow_http: bool) -> bool:
    """The token is sent there: http only to this machine, unless the operator allows it."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # an unclosed bracket, an invalid port
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and (allow_http or is_loopback(parts.hostname or "")))
    return safe and named and not (parts.username or parts.query or parts.fragment)
